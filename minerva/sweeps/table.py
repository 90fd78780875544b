"""What a sweep looks like."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from minerva.sweeps.folder import State, SweepFolder

ORDER = ("failed", "interrupted", "running", "queued", "finished")
COLOURS = {"failed": "red", "interrupted": "yellow", "running": "cyan", "finished": "green"}


def table(states: Mapping[str, State], folder: SweepFolder) -> Any:
    """A row for each job: its status, score, steps, time, what is left, and why it failed. One of rich's."""
    from rich.markup import escape  # here, and not whenever Hydra begins
    from rich.table import Table

    shown = Table("job", "status", "score", "steps", "time", "SPS", "left", "why, and where it says more", box=None)
    shown.columns[0].overflow = shown.columns[-1].overflow = "fold"
    for column in shown.columns[2:7]:
        column.justify = "right"
    for name, state in states.items():
        colour = COLOURS.get(state.status, "")
        status = f"[{colour}]{state.status}[/]" if colour else state.status
        why = f"{state.reason}; {folder.log(name)}" if state.reason else ""
        left = timedelta(seconds=round(eta(state))) if state.status == "running" and state.sps else ""
        shown.add_row(
            escape(name),
            status,
            f"{state.score:.1f}" if state.score is not None else "",
            f"{state.step:,}/{state.total_steps:,}" if state.step else "",
            str(timedelta(seconds=round(state.seconds))) if state.seconds else "",
            f"{state.sps:,.0f}" if state.status == "running" and state.sps else "",
            str(left),
            escape(why),
        )
    return shown


def eta(state: State) -> float:
    """Seconds that a running job has left, at the speed that it had."""
    return (state.total_steps - state.step) * state.seconds / max(state.step, 1)


def summary(states: Mapping[str, State]) -> str:
    """``12 jobs: 1 failed, 2 running, 9 finished``."""
    count = Counter(state.status for state in states.values())
    parts = [f"{count[status]} {status}" for status in ORDER if count[status]]
    return f"{len(states)} job{'s' * (len(states) != 1)}: {', '.join(parts)}"
