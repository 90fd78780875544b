"""Ten kills, and that a difference would be found."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.conftest import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import torture

CASES = ("PPO, gymnasium", "V-MPO, EnvPool")


@pytest.mark.timeout(900)
def test_runs_that_are_killed_end_like_those_that_are_not():
    command = [sys.executable, "scripts/torture.py", "--kills", "10", "--seed", "1", "--cases", *CASES]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    table = re.findall(r"^\| (.+?) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", done.stdout, re.MULTILINE)
    assert [case for case, *_ in table] == list(CASES)
    assert [int(kills) for _, _, kills, *_ in table] == [5, 5]
    assert sum(int(writing) for *_, writing, _ in table) > 0, "some while a checkpoint was written"
    assert {int(found) for *_, found in table} == {0}


def a_run(folder: Path, python) -> Path:
    overrides = ("env=probe/constant", "trainer.total_steps=2560", "compile=false")
    assert python("train.py", *overrides, f"hydra.run.dir={folder}").returncode == 0
    return folder


def test_a_difference_is_found(tmp_path, python):
    one = a_run(tmp_path / "one", python)
    assert torture.differences(one, one) == []

    table = tmp_path / "table"
    shutil.copytree(one, table)
    lines = (table / "metrics.csv").read_text().splitlines(keepends=True)
    for forged in (lines[:-1], [*lines, lines[-1]], [*lines[:-1], lines[-1].replace(",", ",1", 1)]):
        (table / "metrics.csv").write_text("".join(forged))
        assert any(what.startswith("metrics.csv, step") for what in torture.differences(one, table))

    board = tmp_path / "board"
    shutil.copytree(one, board)
    next(board.glob("events.*")).unlink()
    assert any(what.startswith("TensorBoard: ") for what in torture.differences(one, board))


@pytest.mark.parametrize(
    ("a", "b", "where"),
    [
        ({"x": torch.zeros(2)}, {"x": torch.tensor([0.0, -0.0])}, ["s x"]),  # equal numbers, another bit
        ({"x": torch.zeros(2)}, {"x": torch.zeros(2, dtype=torch.float64)}, ["s x"]),
        ({"x": [1, 2.0]}, {"x": [1, 2.5]}, ["s x 1"]),
        ({"x": 1}, {"y": 1}, ["s"]),
        ({"x": float("nan")}, {"x": float("nan")}, []),
    ],
)
def test_what_is_unequal_is_found(a, b, where):
    assert torture.unequal(a, b, "s") == where
