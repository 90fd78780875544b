"""The picture at the end of a run. It imports no more than it needs, for every run waits for it."""

from __future__ import annotations

import csv
import logging
import os
from pathlib import Path

from minerva.report.looks import COLOURS, STYLE, unit

log = logging.getLogger(__name__)

NAME = "learning_curve.png"
SHOWN = (("train/episode_return", "while learning", {"color": COLOURS[5], "lw": 1}),
         ("eval/return_mean", "evaluation", {"color": COLOURS[0], "lw": 1.8, "marker": "o", "ms": 3}))  # fmt: skip


def learning_curve(run_dir: Path, title: str) -> None:
    """Draw the mean returns in ``metrics.csv`` over steps into ``learning_curve.png`` beside it. What goes wrong is a warning: the run is done."""
    try:
        os.environ["MPLBACKEND"] = "agg"  # whatever this process was begun in
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        with open(run_dir / "metrics.csv", newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        size, label = unit(float(rows[-1]["step"]))
        with matplotlib.rc_context(STYLE):
            figure = Figure(figsize=(6, 3.6), layout="constrained")
            FigureCanvasAgg(figure)
            axis = figure.add_subplot()
            for column, name, look in SHOWN:
                points = [(int(row["step"]) / size, float(row[column])) for row in rows if row.get(column)]
                if points:
                    dot = {"marker": "o"} if len(points) == 1 else {}
                    axis.plot(*zip(*points, strict=True), label=name, **(look | dot))  # type: ignore[arg-type]
            axis.set(title=title.replace("$", r"\$"), xlabel=label, ylabel="mean return")
            axis.legend(frameon=False)
            figure.savefig(run_dir / NAME, metadata={"Software": None})
    except Exception as error:
        log.warning("no %s: %s", NAME, " ".join(f"{type(error).__name__}: {error}".split()))
