"""Pictures of results: curves over tasks, and what all tasks say together."""

from __future__ import annotations

import math
import os
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ["MPLBACKEND"] = "agg"  # no display is needed, whatever this process was begun in
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.ticker import MaxNLocator

from minerva.report.cells import Cell, curve
from minerva.report.looks import COLOURS, STYLE, unit
from minerva.report.statistics import Estimate, band
from minerva.runs import RunRecord

COLUMNS = 3
OPEN = " (not finished)"
WIDEST = 34  # characters of a title in a line


def curves(
    path: Path,
    tasks: Sequence[str],
    colours: Mapping[str, str],
    cells: Sequence[Cell],
    unfinished: Sequence[tuple[str, RunRecord]],
    by_time: bool,
) -> None:
    """A field for each task: means over the seeds with 95% intervals; runs that are not finished dotted, by themselves.

    Args:
        path: of the file without its ending; .png and .svg are written.
        tasks: one field each.
        colours: of the methods.
        cells: finished runs.
        unfinished: the method of each run that is not, and the run.
        by_time: over hours of the runs' own work, not steps.
    """
    lines = [(cell.env, cell.method, *cell.curves(by_time)) for cell in cells]
    dotted = [(run.env, method, *curve(run, by_time)) for method, run in unfinished]
    size, label = unit(max((float(x[-1]) for _, _, x, _ in (*lines, *dotted) if len(x)), default=0.0), by_time)
    with plt.rc_context(STYLE):
        columns = min(COLUMNS, len(tasks))
        rows = math.ceil(len(tasks) / columns)
        names = sorted({method for _, method, *_ in lines} | {f"{method}{OPEN}" for _, method, *_ in dotted})
        width = 3.4 * columns + 0.4
        beside = max(1, int(width / (0.5 + 0.075 * max(map(len, names), default=1))))  # names in a row of the legend
        figure, axes = plt.subplots(
            rows,
            columns,
            figsize=(width, 2.5 * rows + 0.3 + 0.22 * math.ceil(len(names) / beside)),
            squeeze=False,
            layout="constrained",
        )
        handles: dict[str, Any] = {}
        for axis in axes.flat[len(tasks) :]:
            axis.set_visible(False)
        for i, task in enumerate(tasks):
            axis = axes.flat[i]
            axis.set_title(_plain("\n".join(textwrap.wrap(task, WIDEST))))
            for env, method, x, y in dotted:
                if env == task and len(x):
                    (line,) = axis.plot(x / size, y, ":", lw=1, alpha=0.7, color=colours[method], marker=_marker(x))
                    handles.setdefault(f"{method}{OPEN}", line)
            for env, method, x, y in lines:
                if env == task and len(x):
                    middle, low, high = band(y)
                    axis.fill_between(x / size, low, high, color=colours[method], alpha=0.2, lw=0)
                    (line,) = axis.plot(x / size, middle, lw=1.6, color=colours[method], marker=_marker(x))
                    handles[method] = line
            axis.xaxis.set_major_locator(MaxNLocator(5))
            axis.yaxis.set_major_locator(MaxNLocator(5))
            if i + columns >= len(tasks):
                axis.set_xlabel(label)
            if i % columns == 0:
                axis.set_ylabel("mean return")
        shown = [name for name in names if name in handles]
        figure.legend(
            [handles[n] for n in shown],
            list(map(_plain, shown)),
            loc="outside upper center",
            ncols=beside,
            frameon=False,
        )
        _save(figure, path)


def aggregates(path: Path, colours: Mapping[str, str], estimates: Mapping[str, Mapping[str, Estimate]]) -> None:
    """A field for each statistic, by name; in it a line for each method, with its 95% interval."""
    with plt.rc_context(STYLE):
        methods = sorted({method for of in estimates.values() for method in of}, reverse=True)
        figure, axes = plt.subplots(
            1,
            len(estimates),
            figsize=(3.2 * len(estimates) + 1.2, 0.35 * len(methods) + 1.0),
            squeeze=False,
            sharey=True,
            layout="constrained",
        )
        for axis, (name, of) in zip(axes.flat, estimates.items(), strict=True):
            for y, method in enumerate(methods):
                found, look = of[method], {"color": colours[method]}
                axis.plot([found.low, found.high], [y, y], lw=6, alpha=0.3, solid_capstyle="butt", **look)
                axis.plot(found.value, y, "o", **look)
            axis.set_yticks(range(len(methods)), list(map(_plain, methods)))
            axis.set_ylim(-0.6, len(methods) - 0.4)
            axis.set_xlabel(name)
            axis.xaxis.set_major_locator(MaxNLocator(5))
        _save(figure, path)


def colours_of(methods: Sequence[str]) -> dict[str, str]:
    """One for each, in all figures the same."""
    return {method: COLOURS[i % len(COLOURS)] for i, method in enumerate(sorted(methods))}


def _marker(x: np.ndarray) -> str | None:
    """For what is a point and no line."""
    return "o" if x[0] == x[-1] else None


def _plain(text: str) -> str:
    """As it is, and no formula of matplotlib's."""
    return text.replace("$", r"\$")


def _save(figure: Any, path: Path) -> None:
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # once for both: it takes longer than to draw
    figure.savefig(path.with_suffix(".png"))
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    plt.close(figure)
