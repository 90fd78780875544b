"""Weights & Biases."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, suppress
from pathlib import Path
from typing import Any, Literal

import wandb


class WandBLogger:
    """A run of Weights & Biases, named after the run directory; its id is kept there, so that a run goes on as itself.

    Here too ``metrics.csv`` is the ground truth. wandb sends and writes with a delay, so that a run which was killed, or
    whose server was away, lost rows; other rows are after the step it goes on from. When it goes on, the server says
    which row is its last, and is sent those of ``metrics.csv`` after it. Offline all are written anew, in place of what
    was, but for what has been synced.

    Args:
        project, entity, group, tags: as ``wandb.init`` has them.
        mode: ``"online"``, or ``"offline"`` to write into the run directory for a later ``wandb sync``.
        timeout: seconds to wait for the server at the begin, and again at the end.
        run_dir: the run directory, with a ``metrics.csv`` that was rewound to ``step``.
        step: the step a run begins at; at 0 it is a new run.
        config: the run's configuration.

    Raises:
        RuntimeError: there is no key, or the server cannot be reached or does not answer.
    """

    def __init__(
        self,
        *,
        project: str,
        entity: str | None,
        group: str | None,
        tags: Sequence[str],
        mode: Literal["online", "offline"],
        timeout: float,
        run_dir: Path,
        step: int,
        config: Mapping[str, Any],
    ) -> None:
        self._run_dir = run_dir
        with self._explained():
            self._run = wandb.init(
                project=project,
                entity=entity,
                group=group,
                tags=list(tags),
                mode=mode,
                dir=run_dir,
                name=run_dir.name,
                id=_run_id(run_dir, step, mode),
                resume="allow",
                config=dict(config),
                settings=wandb.Settings(
                    console="off",
                    x_disable_stats=True,
                    disable_git=True,
                    silent=True,
                    init_timeout=timeout,
                    finish_timeout=timeout,
                    finish_timeout_raises=True,
                ),
            )
            self._go_on()

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Send what was measured, unless it is there already."""
        if step > self._last:
            row = {name: value for name, value in metrics.items() if not math.isnan(value)}
            self._run.log(row, step=step, commit=True)

    def video(self, path: Path, step: int) -> None:
        """Send it with the row of that step, which follows."""
        if step > self._last:
            self._run.log({"eval/video": wandb.Video(str(path))}, step=step, commit=False)

    def flush(self) -> None:
        """Nothing: what is lost is filled in from ``metrics.csv``."""

    def close(self) -> None:
        """Finish the run.

        Raises:
            RuntimeError: the server did not take all of it in time.
        """
        with self._explained() as said:
            self._run.finish()
            if said.getvalue():
                raise RuntimeError(said.getvalue())

    def _go_on(self) -> None:
        """Fill in what W&B lacks, and remove the files that ``wandb sync`` would send a second time."""
        here = Path(self._run.settings.sync_dir).name
        old = [path for path in self._run_dir.glob("wandb/offline-run-*") if path.name != here]
        synced = [path for path in old if any(path.glob("*.synced"))]
        steps = [_last_step(path) for path in synced if self._run.id in path.name]
        self._last = max([self._run.starting_step - 1, *steps])
        metrics = self._run_dir / "metrics.csv"
        if metrics.exists():
            with open(metrics, newline="", encoding="utf-8") as file:
                for row in csv.DictReader(file):
                    step = int(row.pop("step"))
                    self.log({name: float(cell) for name, cell in row.items() if cell}, step)
        for path in set(old) - set(synced):
            shutil.rmtree(path, ignore_errors=True)

    @contextmanager
    def _explained(self) -> Iterator[io.StringIO]:
        """One error for all that goes wrong. What wandb says is kept off the terminal, where it would ask for a key, too."""
        # Its own reports of errors would wait, at the end of the process, for the server that is away.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        with redirect_stderr(io.StringIO()) as said:
            try:
                yield said
            except Exception as error:
                with suppress(Exception):
                    wandb.teardown()  # of no more use, and would complain at the end of the process
                raise RuntimeError(
                    f"{str(error) or type(error).__name__}; metrics.csv has it all, and training that begins again in "
                    f"{self._run_dir} sends what W&B lacks"
                ) from error


def _run_id(run_dir: Path, step: int, mode: str) -> str:
    """The run's id. It is a new one offline after online: nobody there knows which rows the server has."""
    file = run_dir / "wandb_id.txt"
    run_id = file.read_text().strip() if step > 0 and file.exists() else ""
    if not run_id or (mode == "offline" and any(run_dir.glob(f"wandb/run-*-{run_id}*"))):
        run_id = uuid.uuid4().hex[:8]
        file.write_text(run_id)
    return run_id


def _last_step(synced: Path) -> int:
    """The last step that the server was given by ``wandb sync``, which leaves the summary there; -1 if none."""
    return int(json.loads((synced / "files" / "wandb-summary.json").read_text()).get("_step", -1))
