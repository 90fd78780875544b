"""Weights & Biases."""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import wandb


class WandBLogger:
    """A run of Weights & Biases, named after the run directory; its id is kept there, so that a run goes on as itself.

    Args:
        project, entity, group, tags: as ``wandb.init`` has them.
        mode: ``"online"``, or ``"offline"`` to write into the run directory for a later ``wandb sync``.
        run_dir: the run directory.
        step: the step a run begins at; at 0 it is a new run.
        config: the run's configuration.
    """

    def __init__(
        self,
        *,
        project: str,
        entity: str | None,
        group: str | None,
        tags: Sequence[str],
        mode: Literal["online", "offline"],
        run_dir: Path,
        step: int,
        config: Mapping[str, Any],
    ) -> None:
        id_file = run_dir / "wandb_id.txt"
        if step == 0 or not id_file.exists():
            id_file.write_text(uuid.uuid4().hex[:8])
        self._run = wandb.init(
            project=project,
            entity=entity,
            group=group,
            tags=list(tags),
            mode=mode,
            dir=run_dir,
            name=run_dir.name,
            id=id_file.read_text().strip(),
            resume="allow",
            config=dict(config),
            settings=wandb.Settings(console="off", x_disable_stats=True, disable_git=True, silent=True),
        )

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Send what was measured."""
        self._run.log({name: value for name, value in metrics.items() if not math.isnan(value)}, step=step)

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()
