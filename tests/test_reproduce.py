"""``scripts/reproduce.py``, on real runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.test_train import train


@pytest.fixture
def run(python, tmp_path: Path) -> Path:
    assert train(python, tmp_path / "run").returncode == 0
    return tmp_path / "run"


def test_a_run_is_identical_to_itself_and_not_to_what_is_forged(python, run, tmp_path):
    done = python("scripts/reproduce.py", run, "--out", tmp_path / "again")
    assert done.returncode == 0, done.stderr
    assert "identical: 11 rows to step 2,560, and the parameters\n  surroundings: the same\n" in done.stdout

    table, facts = (run / "metrics.csv").read_text().splitlines(), json.loads((run / "run.json").read_text())
    columns, row = table[0].split(","), table[3].split(",")
    place = columns.index("losses/entropy")
    old, row[place] = row[place], "0.5"
    (run / "metrics.csv").write_text("\n".join([*table[:3], ",".join(row), *table[4:], ""]))
    facts["packages"]["torch"], facts["cpu"] = "1.0", "Abacus"
    (run / "run.json").write_text(json.dumps(facts))
    done = python("scripts/reproduce.py", run, "--steps", str(int(row[0])), "--out", tmp_path / "third")
    assert done.returncode == 1
    assert f"different: at step {row[0]}, losses/entropy was 0.5 and is {old}" in done.stdout
    assert "surroundings: packages torch was 1.0 and is" in done.stdout
    assert "surroundings: cpu was Abacus and is" in done.stdout


def test_what_cannot_be_repeated_is_one_line(python, run, tmp_path):
    for args, message in (
        ((tmp_path,), "not a run directory"),
        ((run, "--steps", "1"), "there are no rows to step 1"),
        ((run, "--out", run), "there is a run already"),
    ):
        done = python("scripts/reproduce.py", *args)
        assert done.returncode == 1
        assert message in done.stderr
        assert done.stderr.count("\n") == 1
