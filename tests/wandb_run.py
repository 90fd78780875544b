"""Logs to ``metrics.csv`` and W&B as a run does: ``wandb_run.py RUN_DIR MODE STEP END [timeout=S] [pause=N] [kill=N]``.

It goes on from STEP. After N rows were given to W&B, those filled in included, it pauses until there is a file
``RUN_DIR/go``, or is killed.
"""

import logging
import math
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

from minerva.loggers.csv import CSVLogger
from minerva.loggers.group import LoggerGroup
from minerva.loggers.wandb import WandBLogger


def row(step: int) -> dict[str, float]:
    return {"loss": 1 / step, "return": math.nan if step % 200 else step / 3}


def make(run_dir: Path, mode: str, step: int, timeout: float = 60) -> WandBLogger:
    return WandBLogger(
        project="minerva",
        entity=None,
        group="tests",
        tags=["a", "b"],
        mode=mode,
        timeout=timeout,
        run_dir=run_dir,
        step=step,
        config={"seed": 3, "algo": {"gamma": 0.99}},
    )


def main(run_dir: Path, mode: str, step: int, end: int, timeout: float = 60, pause: int = 0, kill: int = 0) -> None:
    rows, log = 0, WandBLogger.log

    def counted(self, metrics, step):
        nonlocal rows
        log(self, metrics, step)
        rows += 1
        while rows == pause and not (run_dir / "go").exists():
            time.sleep(0.01)
        if rows == kill:
            os.kill(os.getpid(), signal.SIGKILL)

    WandBLogger.log = counted
    csv = partial(CSVLogger, path=run_dir / "metrics.csv", step=step)
    group = LoggerGroup({"csv": csv, "wandb": partial(make, run_dir, mode, step, timeout)})
    for at in range(step + 100, end + 1, 100):
        group.log(row(at), at)
    group.close()


if __name__ == "__main__":
    logging.basicConfig(format="%(message)s")
    options = {key: int(value) for key, value in (option.split("=") for option in sys.argv[5:])}
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), **options)
