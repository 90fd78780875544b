"""TensorBoard event files in the run directory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter


class TensorBoardLogger:
    """See them with ``tensorboard --logdir outputs``.

    Args:
        run_dir: the run directory.
        step: the step a run begins at; what was written after it is hidden.
        config: not used.
    """

    def __init__(self, *, run_dir: Path, step: int, config: Mapping[str, object]) -> None:
        self._writer = SummaryWriter(str(run_dir), purge_step=step + 1)

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Write what was measured."""
        for name, value in metrics.items():
            if not math.isnan(value):
                self._writer.add_scalar(name, value, step)

    def video(self, path: Path, step: int) -> None:
        """Nothing: it shows none."""

    def flush(self) -> None:
        """Write out what was logged, which waits for up to two minutes else."""
        self._writer.flush()

    def close(self) -> None:
        """Write out what is left."""
        self._writer.close()
