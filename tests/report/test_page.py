"""A report: its numbers against hand computations, and that all is named."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd

from minerva.report import page
from minerva.report.cells import cells
from minerva.runs import read_runs
from tests.report.runs import make_run


def cells_of(text: str, section: str) -> list[list[str]]:
    """The rows of the first table under a heading."""
    body = text.partition(f"## {section}\n")[2].partition("\n## ")[0]
    table = next(part for part in body.split("\n\n") if part.lstrip().startswith("|"))
    table = re.sub(r"\\(\W|_)", r"\1", table)  # characters that are not meant as Markdown
    return [line.strip("|").removeprefix(" ").removesuffix(" ").split(" | ") for line in table.strip().splitlines()[2:]]


def report(folder: Path) -> str:
    page.write(read_runs(folder), folder / "report")
    return (folder / "report" / "report.md").read_text()


def report_of(folder: Path, *names: str) -> str:
    page.write(read_runs(*(folder / name for name in names)), folder / "report")
    return (folder / "report" / "report.md").read_text()


def test_a_table_of_tasks_and_algorithms(tmp_path):
    for seed, score in enumerate([100.0, 200.0, 300.0]):
        make_run(tmp_path / f"p{seed}", seed=seed, score=score)
        make_run(tmp_path / f"v{seed}", seed=seed, score=2 * score, algo="vmpo.VMPO")
        make_run(tmp_path / f"w{seed}", seed=seed, score=score, env="dm_control/walker-walk-v0")
        make_run(tmp_path / f"u{seed}", seed=seed, score=score / 2, env="dm_control/walker-walk-v0", algo="vmpo.VMPO")
    text = report(tmp_path)
    rows = cells_of(text, "Returns")
    assert [row[:4] for row in rows] == [
        ["dm_control/cheetah-run", "PPO", "1,000", "3"], ["dm_control/cheetah-run", "VMPO", "1,000", "3"],
        ["dm_control/walker-walk", "PPO", "1,000", "3"], ["dm_control/walker-walk", "VMPO", "1,000", "3"],
    ]  # fmt: skip
    assert rows[0][4] == "200.0 [100.0, 300.0]"
    assert rows[1][4] == "**400.0 [200.0, 600.0]**"
    assert rows[2][4].startswith("**200.0")
    assert rows[0][6].startswith("432.56 ± 82.54 (CleanRL")
    together = cells_of(text, "All tasks together")
    assert [row[0] for row in together] == ["PPO", "VMPO"]
    # The middle four of 0.1, 0.1, 0.2, 0.2, 0.3, 0.3; and of 0.05, 0.1, 0.15, 0.2, 0.4, 0.6.
    assert together[0][1].startswith("0.200 [")
    assert together[1][1].startswith(f"{np.mean([0.1, 0.15, 0.2, 0.4]):.3f} [")
    assert together[1][2].startswith(f"{1 - 0.25:.3f} [")
    # Of 9 pairs VMPO wins 7 and one half on the one task, 1 and two halves on the other.
    better = text.partition("How likely")[2].split("\n| ")[3]
    assert better.startswith(f"PPO | VMPO | {1 - np.mean([(6 + 1) / 9, (1 + 1) / 9]):.3f}")


def test_runs_of_unlike_kinds_are_told_apart_and_named(tmp_path):
    for seed in range(3):
        make_run(tmp_path / f"a{seed}", seed=seed, algo__gamma=0.9)
    make_run(tmp_path / "b0", seed=0, algo__gamma=0.95, steps=500)
    make_run(tmp_path / "again", seed=0, algo__gamma=0.9, score=400.0, end="2026-02-02")
    make_run(tmp_path / "failed", seed=9, status="failed", score=None)
    text = report(tmp_path)
    rows = cells_of(text, "Returns")
    assert [(row[2], row[3]) for row in rows] == [("1,000", "3"), ("500", "1")]
    assert rows[0][4].startswith("**200.0 ["), "of 400, 100 and 100: the last run of seed 0 counts"
    assert rows[1][4] == "100.0"
    assert "The numbers of seeds differ, from 1 to 3" in text
    assert "different numbers of steps: 500, 1,000" in text
    left = {row[0]: row[1:] for row in cells_of(text, "Not in these numbers")}
    assert left[str(tmp_path / "failed")] == ["failed", "1,000", "RuntimeError: no"]
    assert left[str(tmp_path / "a0")][0] == "repeated"
    assert len(left) == 2
    methods = dict(row for row in cells_of(text, "Methods"))
    assert methods["PPO 1"] == "PPO, algo.gamma=0.9, trainer.total_steps=1000"
    keys = {row[0]: row[1:] for row in cells_of(text, "What differs")}
    assert keys["algo.gamma"] == ["0.9", "0.95", "0.99"]


def test_a_method_has_one_name_on_all_tasks(tmp_path):
    """A value that was varied on one task alone tells methods apart on the others as well."""
    for seed in range(2):
        for gamma in (0.9, 0.99):
            make_run(tmp_path / f"c{gamma}{seed}", seed=seed, algo__gamma=gamma)
        make_run(tmp_path / f"w{seed}", seed=seed, algo__gamma=0.99, env="dm_control/walker-walk-v0")
    text = report(tmp_path)
    assert [row[1] for row in cells_of(text, "Returns")] == ["PPO, algo.gamma=0.9", "PPO, algo.gamma=0.99", "PPO, algo.gamma=0.99"]  # fmt: skip
    assert [row[0] for row in cells_of(text, "All tasks together")] == ["PPO, algo.gamma=0.9", "PPO, algo.gamma=0.99"]
    make_run(tmp_path / "v0", algo="vmpo.VMPO", env="dm_control/walker-walk-v0")
    text = report_of(tmp_path, "c0.90", "v0")
    assert "no task that all of these methods have finished" in text


def test_small_returns_have_digits(tmp_path):
    for seed, score in enumerate([0.012, 0.0245, 0.045]):
        make_run(tmp_path / str(seed), seed=seed, score=score)
    assert cells_of(report(tmp_path), "Returns")[0][4] == "0.0272 [0.0120, 0.0450]"


def test_a_run_counts_with_its_first_evaluation_before_that(tmp_path):
    """One that compiled first, for longer than the other took in all."""
    for seed, wait in enumerate([0, 500]):
        path = make_run(tmp_path / str(seed), seed=seed) / "metrics.csv"
        rows = pd.read_csv(path)
        rows["time/rollout"] += wait
        rows.to_csv(path, index=False)
    (cell,) = cells(read_runs(tmp_path), dict.fromkeys([str(tmp_path / "0"), str(tmp_path / "1")], "PPO"))
    x, y = cell.curves(by_time=True)
    assert (x[0], x[-1]) == (2 + 2 + 1, 10 + 10 + 1)
    np.testing.assert_allclose(y[0], np.linspace(20, 100, len(x)))
    assert np.all(y[1] == 20)


def test_what_was_not_measured_is_left_out_and_said(tmp_path):
    for seed in range(3):
        make_run(tmp_path / str(seed), seed=seed)
    (tmp_path / "2" / "metrics.csv").write_text("")
    make_run(tmp_path / "waits", seed=5, status="queued", score=None)
    text = report(tmp_path)
    assert cells_of(text, "Returns")[0][2:6] == ["1,000", "3", "100.0 [100.0, 100.0]", "100.0 [100.0, 100.0]"]
    assert "1 of 3 runs have no evaluations" in text
    assert "All 4 runs, finished or not, took 0:01:03." in text, "three of 10 + 10 + 0.5 + 0.5 seconds"


def test_a_report_leaves_no_figure_of_the_one_before(tmp_path):
    make_run(tmp_path / "a")
    make_run(tmp_path / "b", algo="vmpo.VMPO")
    report(tmp_path)
    assert (tmp_path / "report" / "figures" / "aggregates.png").exists()
    written = page.write(read_runs(tmp_path / "a"), tmp_path / "report")
    assert {path.name for path in written} == {"index.html", "report.md", "curves_by_steps.png", "curves_by_steps.svg", "curves_by_time.png", "curves_by_time.svg"}  # fmt: skip


def test_the_page_stands_by_itself(tmp_path):
    make_run(tmp_path / "a", algo__gamma="<script>alert(1)</script>")
    make_run(tmp_path / "b")
    report(tmp_path)
    html = (tmp_path / "report" / "index.html").read_text()
    assert "<script" not in html
    assert "&lt;script&gt;alert" in html, "shown as it is"
    sources = re.findall(r'(?:src|href)="([^"]{0,40})', html)
    assert sources
    assert all(source.startswith("data:image/svg+xml;base64,") for source in sources)
    assert html.count("<table>") >= 4
    for figure in (tmp_path / "report" / "figures").glob("*.svg"):
        ElementTree.parse(figure)


def test_what_a_stranger_wrote_is_text(tmp_path):
    run = make_run(tmp_path / "a", status="failed", score=None, env="$\\bad$ | <b>x</b>")
    reason = "x |\n\n## Summary\n\n[see](javascript:alert(1)) ![p](http://evil/t.png)\n\n<img src=x onerror=alert(1)>"
    facts = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(facts | {"reason": reason, "git": "abc", "cpu": ["<i>"]}))
    text = report(tmp_path)
    html = (tmp_path / "report" / "index.html").read_text()
    assert "<img src=x" not in text
    assert not re.search(r'<img (?!alt="[^"]*" src="data:)|<a |<b>|<i>|<h2>Summary', html)
    assert "default-src 'none'" in html


def test_damaged_runs_are_named_and_do_not_stop_the_others(tmp_path):
    make_run(tmp_path / "good")
    make_run(tmp_path / "no seed", seed=None)
    make_run(tmp_path / "steps", trainer__total_steps="abc")
    odd = make_run(tmp_path / "odd")
    (odd / ".hydra" / "config.yaml").write_text(
        "algo: {_target_: x.PPO, when: 2020-01-01}\nenv: {id: E-v0}\nx: &a [*a]\n"
    )
    status = make_run(tmp_path / "status")
    (status / "run.json").write_text('{"status": ["x"], "score": {}, "git": 3}')
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "sweep.json").write_text("{}")
    infinite = make_run(tmp_path / "infinite")
    with open(infinite / "metrics.csv", "a") as file:
        file.write("inf,1,1,1,1,1,1,1\n-3.5,")
    text = report(tmp_path)
    assert "7 runs" in text or "6 runs" in text
    assert re.search(r"cheetah-run \| PPO", text)


def test_two_reports_of_the_same_are_the_same_files(tmp_path):
    for seed in range(2):
        make_run(tmp_path / "runs" / str(seed), seed=seed)
    for name in ("one", "other"):
        page.write(read_runs(tmp_path / "runs"), tmp_path / name)
    for path in sorted((tmp_path / "one").rglob("*.*")):
        assert path.read_bytes() == (tmp_path / "other" / path.relative_to(tmp_path / "one")).read_bytes(), path.name


def test_with_nothing_finished_there_is_a_report(tmp_path):
    make_run(tmp_path / "a", status="interrupted", score=None, rows=1)
    text = report(tmp_path)
    assert "No run is finished and has a score." in text
    assert "| interrupted | 1,000 |" in text
    assert (tmp_path / "report" / "figures" / "curves_by_steps.png").stat().st_size > 1000


def test_the_command(python, tmp_path):
    make_run(tmp_path / "runs" / "a")
    make_run(tmp_path / "runs" / "b", algo__gamma=0.9, seed=1)
    done = python("scripts/report.py", tmp_path / "runs", "algo.gamma=0.9", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1 run: ")
    assert (tmp_path / "out" / "index.html").exists()
    done = python("scripts/report.py", tmp_path / "nothing")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "nothing: allowed is a directory" in done.stderr
    done = python("scripts/report.py", tmp_path / "runs", "algo.gamma=7", "--out", tmp_path / "other")
    assert done.returncode == 1
    assert not (tmp_path / "other").exists()
