"""What a person sees while a run goes on."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn


class ConsoleLogger:
    """A progress bar with time left, speed and returns; where output is not a terminal, a plain line now and then.

    Args:
        total_steps: the run's environment steps.
        step: the step a run begins at.
        console: where to; standard error when None.
        line_seconds: at most one plain line in this many seconds.
    """

    def __init__(
        self, *, total_steps: int, step: int, console: Console | None = None, line_seconds: float = 10
    ) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._total, self._line_seconds = total_steps, line_seconds
        self._begun, self._first_step, self._last_line = time.monotonic(), step, -math.inf
        self._shown: dict[str, float] = {}
        self._bar: Progress | None = None
        if self._console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.completed:,}/{task.total:,} steps"),
                BarColumn(),
                TaskProgressColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                TextColumn("{task.description}"),
                console=self._console,
            )
            self._task = self._bar.add_task("", total=total_steps, completed=step)
            self._bar.start()

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Show how far it is."""
        self._shown.update({name: value for name, value in metrics.items() if not math.isnan(value)})
        text = "  ".join(
            f"{label} {self._shown[name]:{form}}"
            for label, name, form in (
                ("SPS", "charts/SPS", ",.0f"),
                ("return", "train/episode_return", ".1f"),
                ("eval", "eval/return_mean", ".1f"),
            )
            if name in self._shown
        )
        if self._bar is not None:
            self._bar.update(self._task, completed=step, description=text)
        elif time.monotonic() - self._last_line >= self._line_seconds or step >= self._total:
            self._last_line = time.monotonic()
            left = (self._total - step) * (self._last_line - self._begun) / max(step - self._first_step, 1)
            self._console.print(f"{step:,}/{self._total:,} steps  left {left:.0f} s  {text}", soft_wrap=True)

    def video(self, path: Path, step: int) -> None:
        """Nothing."""

    def flush(self) -> None:
        """There is nothing to wait for."""

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
