"""A report in words and tables: Markdown, and a page of it that has its figures within."""

from __future__ import annotations

import base64
import html
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import markdown
import numpy as np
import yaml

from minerva.report import figures
from minerva.report.cells import Cell, cells, describe, shorten
from minerva.report.statistics import (
    Estimate,
    estimate,
    interquartile_mean,
    optimality_gap,
    probability_of_improvement,
)
from minerva.runs import SECONDS, RunRecord, differing

MANY = 8  # methods that a figure can show


class Raw(str):
    """Markdown; any other text is shown as it is."""


CSS = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; display: block; overflow-x: auto; margin: 1rem 0; }
th, td { border-bottom: 1px solid #ddd; padding: .25rem .7rem; text-align: left; vertical-align: top; }
th { border-bottom: 2px solid #888; } td { font-variant-numeric: tabular-nums; }
img { max-width: 100%; height: auto; } code { background: #f3f3f3; padding: 0 .2em; }
"""


@cache
def references() -> dict[str, Any]:
    """Published returns, and what returns mean: ``references.yaml``."""
    known: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("references.yaml").read_text())
    return known


def write(records: Sequence[RunRecord], out: Path) -> list[Path]:
    """Write report.md, index.html and the figures of ``records`` into ``out``. Returns what was written."""
    (out / "figures").mkdir(parents=True, exist_ok=True)
    descriptions = describe(records)
    short = shorten(descriptions.values())
    names = {path: short[text] for path, text in descriptions.items()}
    found = cells(records, names)
    shown = _shown(found)
    drawn = [cell for cell in found if cell.method in shown]
    begun = [(names[str(r.path)], r) for r in records if r.status != "finished" and len(r.metrics)]
    room = [*shown, *sorted({method for method, _ in begun} - {*shown})][:MANY]
    unfinished = [(method, run) for method, run in begun if method in room]
    tasks = sorted({cell.env for cell in drawn} | {run.env for _, run in unfinished})
    colours = figures.colours_of(room)
    parts = ["# Report", _overview(records)]
    if any(name != text for text, name in short.items()):
        parts += ["## Methods", _table(["method", "what it is"], [[name, text] for text, name in short.items()])]
    parts += ["## Returns", *_returns(found)]
    for old in ("aggregates", "curves_by_steps", "curves_by_time"):  # of another report
        for ending in (".png", ".svg"):
            (out / "figures" / old).with_suffix(ending).unlink(missing_ok=True)
    if over := _over_all(found, out / "figures" / "aggregates", shown, colours):
        parts += ["## All tasks together", *over]
    if tasks:
        more = len({cell.method for cell in found}) - len(shown)
        parts += ["## Learning curves", *([f"The {MANY} best methods; {more} more are in the tables."] if more else [])]
        parts += [
            "Means over the seeds, as far as all of them go, with 95% intervals; runs that are not finished dotted."
        ]
        for by_time, name in ((False, "curves_by_steps"), (True, "curves_by_time")):
            figures.curves(out / "figures" / name, tasks, colours, drawn, unfinished, by_time)
            parts.append(f"![Returns over {'time' if by_time else 'environment steps'}](figures/{name}.svg)")
    parts += ["## What differs", *_differences(records, names)]
    parts += ["## Speed and cost", *_cost(found, records)]
    if left := _left_out(records, found):
        parts += ["## Not in these numbers", *left]
    parts += ["## Published", *_published(sorted({record.env for record in records}))]
    text = "\n\n".join(parts) + "\n"
    (out / "report.md").write_text(text, encoding="utf-8")
    (out / "index.html").write_text(_page(text, out), encoding="utf-8")
    return [out / "index.html", out / "report.md", *sorted((out / "figures").iterdir())]


def _overview(records: Sequence[RunRecord]) -> str:
    count = Counter(record.status for record in records)
    commits = {str((r.facts.get("git") or {}).get("commit"))[:7] for r in records if r.facts.get("git")}
    parts = ", ".join(f"{number} {_said(status)}" for status, number in sorted(count.items()))
    made = f" Made by commit{'s' * (len(commits) > 1)} {', '.join(map(_said, sorted(commits)))}." if commits else ""
    return f"{len(records)} run{'s' * (len(records) != 1)}: {parts}.{made}"


def _returns(found: Sequence[Cell]) -> Iterator[str]:
    if not found:
        yield "No run is finished and has a score."
        return
    yield (
        "Final: the mean over seeds of the last policy's mean return, with its 95% bootstrap interval; bold is the highest of a task. Best: the "
        "same of the best evaluation of each run, which is lucky. Steps are those of the shortest run."
    )
    best = {env: max(c.final.mean() for c in found if c.env == env) for env in {c.env for c in found}}
    rows = []
    for cell in found:
        final = _number(estimate([cell.final]))
        winner = cell.final.mean() == best[cell.env] and sum(c.env == cell.env for c in found) > 1
        source, value = next(iter(references()["tasks"].get(cell.env, {}).items()), ("", []))
        published = f"{_plus_minus(value)} ({references()['sources'][source]['name']})" if source else ""
        rows.append(
            [cell.env, cell.method, f"{cell.steps:,}", str(len(cell.runs)), Raw(f"**{_said(final)}**") if winner else final, _number(estimate([cell.best])) if len(cell.best) else "", published]
        )  # fmt: skip
    yield _table(["task", "method", "steps", "seeds", "final", "best", "published"], rows)
    for cell in found:
        if blind := len(cell.runs) - len(cell.best):
            yield f"{_said(cell.method)} on {_said(cell.env)}: {blind} of {len(cell.runs)} runs have no evaluations in metrics.csv."
    seeds = {len(cell.runs) for cell in found}
    if min(seeds) < 2:
        yield "Where there is one seed there is no interval."
    if len(seeds) > 1:
        yield f"The numbers of seeds differ, from {min(seeds)} to {max(seeds)}: intervals of fewer are less certain than they look."
    for env in sorted(best):
        steps = {cell.steps for cell in found if cell.env == env}
        if len(steps) > 1:
            yield f"On {_said(env)} the methods were trained for different numbers of steps: {', '.join(f'{s:,}' for s in sorted(steps))}."


def _over_all(found: Sequence[Cell], figure: Path, shown: Sequence[str], colours: Mapping[str, str]) -> list[str]:
    """Of tasks whose returns have a known range, and that all methods have finished."""
    by_method = {
        method: {cell.env: cell for cell in found if cell.method == method and _range(cell.env)} for method in shown
    }
    by_method = {method: of for method, of in by_method.items() if of}
    tasks = sorted(set.intersection(*(set(of) for of in by_method.values()))) if by_method else []
    if not tasks and len(by_method) > 1:
        return ["There is no task that all of these methods have finished and whose returns have a known range."]
    if not tasks or (len(tasks) < 2 and len(by_method) < 2):
        return []
    scores = {method: {env: _normalised(of[env]) for env in tasks} for method, of in by_method.items()}
    statistics = {"interquartile mean": interquartile_mean, "optimality gap": optimality_gap}
    estimates = {
        name: {method: estimate([*of.values()], statistic) for method, of in scores.items()}
        for name, statistic in statistics.items()
    }
    figures.aggregates(figure, colours, estimates)
    rows = [[method, *(_number(estimates[name][method], 3) for name in statistics)] for method in by_method]
    parts = [
        f"Final returns as parts of their range (0 to 1), over {len(tasks)} tasks that each method has: {', '.join(map(_said, tasks))}. Intervals: stratified "
        "bootstrap over seeds (Agarwal et al. 2021). The optimality gap is better when it is low.",
        _table(["method", *statistics], rows),
        f"![Interquartile mean and optimality gap](figures/{figure.name}.svg)",
    ]
    if len(by_method) > 1:
        better = [
            [x, y, _number(probability_of_improvement(scores[x], scores[y]), 3)] for x, y in combinations(by_method, 2)
        ]
        parts += [
            "How likely a run of the one is better than one of the other:",
            _table(["one", "other", "probability"], better),
        ]
    left = sorted({cell.env for cell in found} - set(tasks))
    if left:
        parts.append(f"Left out, for want of a known range or of a method: {', '.join(map(_said, left))}.")
    return parts


def _differences(records: Sequence[RunRecord], names: Mapping[str, str]) -> Iterator[str]:
    # What only one algorithm has, with one value, is no difference but that of the algorithms.
    keys = [key for key in differing(records) if len({repr(r.config[key]) for r in records if key in r.config}) > 1]
    if not keys:
        yield "Nothing but task, algorithm and seed."
        return
    methods = sorted(set(names.values()))
    if len(methods) > MANY:
        yield f"Keys of which runs have different values: {', '.join(map(_said, keys))}."
        return
    rows = []
    for key in keys:
        values = {
            m: sorted({str(r.config[key]) for r in records if names[str(r.path)] == m and key in r.config})
            for m in methods
        }
        rows.append([key, *(", ".join(values[method]) for method in methods)])
    yield "Values that are not the same for all runs."
    yield _table(["key", *methods], rows)


def _cost(found: Sequence[Cell], records: Sequence[RunRecord]) -> Iterator[str]:
    rows = []
    for cell in found:
        rows_of = [run.metrics for run in cell.runs if len(run.metrics)]
        speeds = [sps for rows in rows_of if "charts/SPS" in rows for sps in rows["charts/SPS"].dropna().iloc[-1:]]
        seconds = [seconds_of(run) for run in cell.runs]
        machines = sorted({str(run.facts.get("cpu")) for run in cell.runs if run.facts.get("cpu")})
        speed = f"{np.median(speeds):,.0f}" if speeds else ""
        rows.append(
            [cell.env, cell.method, speed, _time(float(np.mean(seconds))), _time(sum(seconds)), ", ".join(machines)]
        )
    if rows:
        yield (
            "Speed: the median over runs of steps a second, of training without evaluation. Time, in hours: of training, compiling for the first "
            "run of a kind on a machine, evaluating and saving."
        )
        yield _table(["task", "method", "steps/s", "time a run", "time", "machine"], rows)
    yield f"All {len(records)} runs, finished or not, took {_time(sum(map(seconds_of, records)))}."


def seconds_of(run: RunRecord) -> float:
    """Seconds that a run took by itself, so far."""
    names = [name for name in SECONDS if name in run.metrics]
    return float(run.metrics[names].iloc[-1].sum()) if names and len(run.metrics) else 0.0


def _time(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def _left_out(records: Sequence[RunRecord], found: Sequence[Cell]) -> list[str]:
    rows = [
        [
            str(r.path),
            r.status,
            f"{int(r.metrics['step'].max()):,}" if len(r.metrics) else "0",
            r.reason or ("its last evaluation is not finite" if r.status == "finished" else ""),
        ]
        for r in records
        if r.score is None and r.status != "queued"
    ]
    why = "another run of this seed and method ended later; device, threads and the like make no other method"
    rows += [[str(r.path), "repeated", "", why] for c in found for r in c.repeats]
    queued = sum(r.status == "queued" for r in records)
    parts = [f"{queued} queued, which have not begun."] if queued else []
    return [*parts, _table(["run", "status", "steps", "why"], rows)] if rows else parts


def _published(tasks: Sequence[str]) -> Iterator[str]:
    known, used = references(), {}
    rows = []
    for task in tasks:
        for source, value in known["tasks"].get(task, {}).items():
            rows.append([task, known["sources"][source]["name"], _plus_minus(value)])
            used[source] = known["sources"][source]
    if not rows:
        yield "None is known here for these tasks."
        return
    yield "Mean ± standard deviation over seeds. No two sources are strictly comparable:"
    yield "\n".join(
        f"- {source['name']}: {source['where']}. {source['caveat'][:1].upper()}{source['caveat'][1:]}."
        for source in used.values()
    )
    yield _table(["task", "source", "return"], rows)


def _shown(found: Sequence[Cell]) -> list[str]:
    """The methods that figures show: all, or the best by their mean place among the methods of a task."""
    methods = sorted({cell.method for cell in found})
    if len(methods) <= MANY:
        return methods
    places: dict[str, list[float]] = {method: [] for method in methods}
    for env in {cell.env for cell in found}:
        here = sorted((cell for cell in found if cell.env == env), key=lambda cell: -cell.final.mean())
        for place, cell in enumerate(here):
            places[cell.method].append(place / len(here))
    return sorted(sorted(methods, key=lambda method: float(np.mean(places[method])))[:MANY])


def _range(env: str) -> tuple[float, float] | None:
    return next((tuple(ends) for start, ends in references()["ranges"].items() if env.startswith(start)), None)


def _normalised(cell: Cell) -> np.ndarray:
    low, high = _range(cell.env) or (0.0, 1.0)
    # LaTeX: x = (R - R_\mathrm{low}) \,/\, (R_\mathrm{high} - R_\mathrm{low})
    return (cell.final - low) / (high - low)


def _number(found: Estimate, digits: int | None = None) -> str:
    if digits is None:  # of three that say something
        size = max(abs(x) for x in found if np.isfinite(x)) if np.isfinite(found.value) else 0.0
        digits = max(1, 2 - math.floor(math.log10(size))) if size else 1
    interval = "" if np.isnan(found.low) else f" [{found.low:.{digits}f}, {found.high:.{digits}f}]"
    return f"{found.value:.{digits}f}{interval}"


def _plus_minus(value: Sequence[float]) -> str:
    return " ± ".join(f"{number:g}" for number in value)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    said = [[cell if isinstance(cell, Raw) else _said(cell) for cell in line] for line in (header, *rows)]
    said.insert(1, ["---"] * len(header))
    return "\n".join(f"| {' | '.join(line)} |" for line in said)


def _said(text: object) -> str:
    """What a run says of itself, as text: it is no Markdown, and no HTML."""
    plain = html.escape(" ".join(str(text).split()), quote=False)
    return re.sub(r"([\\`*_{}\[\]()#!|~])", r"\\\1", plain)


def _page(text: str, out: Path) -> str:
    """One file of HTML: the figures are within."""
    body = markdown.markdown(text, extensions=["tables"])

    def inline(found: re.Match[str]) -> str:
        data = base64.b64encode((out / found[1]).read_bytes()).decode()
        return f'src="data:image/svg+xml;base64,{data}"'

    body = re.sub(r'src="(figures/\w+\.svg)"', inline, body)
    safe = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"  # nothing is fetched, and nothing runs
    head = f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{safe}"><meta name="viewport" content="width=device-width, initial-scale=1"><title>minerva: report</title><style>{CSS}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n{body}\n</body></html>\n'
