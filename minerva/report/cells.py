"""Which runs belong together: those of one method on one task."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from minerva.runs import SCORE, SECONDS, RunRecord, differing

LONGEST = 32  # characters of a name in a legend


@dataclass
class Cell:
    """The finished runs of a method on a task, one a seed.

    Attributes:
        env: the task.
        method: the algorithm, and what tells it from others of the same.
        runs: by their seeds.
        repeats: runs that were left out, for another of the same seed ended later.
    """

    env: str
    method: str
    runs: list[RunRecord] = field(default_factory=list)
    repeats: list[RunRecord] = field(default_factory=list)

    @property
    def final(self) -> np.ndarray:
        """Scores [n] of the last policies."""
        return np.array([run.score for run in self.runs], float)

    @property
    def best(self) -> np.ndarray:
        """The best evaluation of each run that was evaluated."""
        best = np.array([run.metrics[SCORE].max() if SCORE in run.metrics else np.nan for run in self.runs], float)
        return best[np.isfinite(best)]

    @property
    def steps(self) -> int:
        """Steps of the shortest run; 0 where none has rows."""
        return int(min((run.metrics["step"].max() for run in self.runs if len(run.metrics)), default=0))

    def curves(self, by_time: bool = False, points: int = 200) -> tuple[np.ndarray, np.ndarray]:
        """Evaluations of each run, at the same places for all, as far as all of them go.

        Returns:
            x [points]: steps, or seconds of the run's own work. y [n, points]: returns, between evaluations on a line; before its first
            a run counts with that.
        """
        each = [curve(run, by_time) for run in self.runs]
        each = [(x, y) for x, y in each if len(x)]
        if not each:
            return np.zeros(0), np.zeros((0, 0))
        grid = np.linspace(min(x[0] for x, _ in each), min(x[-1] for x, _ in each), points)
        return grid, np.array([np.interp(grid, x, y) for x, y in each])


def curve(run: RunRecord, by_time: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Where a run was evaluated, in steps or in seconds of its own work, and its returns there."""
    rows = run.metrics
    if SCORE not in rows:
        return np.zeros(0), np.zeros(0)
    x = rows[[name for name in SECONDS if name in rows]].sum(axis=1) if by_time else rows["step"]
    measured = rows[SCORE].notna().to_numpy()
    return x.to_numpy(float)[measured], rows[SCORE].to_numpy(float)[measured]


def describe(records: Sequence[RunRecord]) -> dict[str, str]:
    """What each run's method is, by its path: the algorithm, and its values of what differs among the runs of that on any one task."""
    groups: dict[tuple[str, str], list[RunRecord]] = defaultdict(list)
    for record in records:
        groups[record.algo, record.env].append(record)
    keys: dict[str, set[str]] = defaultdict(set)
    for (algo, _), group in groups.items():
        keys[algo] |= {*differing(group)}
    return {
        str(record.path): ", ".join(
            [record.algo, *(f"{key}={record.config.get(key)}" for key in sorted(keys[record.algo]))]
        )
        for record in records
    }


def shorten(descriptions: Iterable[str]) -> dict[str, str]:
    """Names by descriptions: the same, or ``PPO 1``, ``PPO 2`` where they would be too long for a legend."""
    by_algo: dict[str, list[str]] = defaultdict(list)
    for text in sorted(set(descriptions)):
        by_algo[text.partition(",")[0]].append(text)
    return {
        text: f"{algo} {number:0{len(str(len(texts)))}}" if max(map(len, texts)) > LONGEST else text
        for algo, texts in by_algo.items()
        for number, text in enumerate(texts, start=1)
    }


def cells(records: Iterable[RunRecord], names: Mapping[str, str]) -> list[Cell]:
    """The finished runs, put together; by task and method."""
    found: dict[tuple[str, str], Cell] = {}
    finished = [record for record in records if record.score is not None]
    for record in sorted(finished, key=lambda record: str(record.facts.get("end"))):
        name = names[str(record.path)]
        cell = found.setdefault((record.env, name), Cell(record.env, name))
        same = [run for run in cell.runs if run.seed == record.seed]
        cell.repeats += same
        cell.runs = sorted([run for run in cell.runs if run not in same] + [record], key=lambda run: run.seed)
    return [found[key] for key in sorted(found)]
