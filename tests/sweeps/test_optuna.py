"""Optuna's sweeps, with real runs."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest
import yaml

from minerva.sweeps.folder import SweepFolder
from tests.conftest import ROOT
from tests.sweeps.test_local import states

pytest.importorskip("optuna")

SWEEP = ("sweep=optuna_ppo", "env=probe/continuous_action", "trainer.total_steps=8192", "compile=false", "logger=[]",
         "hydra.sweeper.n_trials=4", "hydra.sweeper.batch=2")  # fmt: skip


def test_a_sweep_that_was_killed_goes_on_towards_its_total(python, tmp_path):
    folder = tmp_path / "sweep"
    command = [sys.executable, "train.py", *SWEEP, f"hydra.sweep.dir={folder}"]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 100
    while len([*folder.glob("*/checkpoints/last.pt")]) < 3:  # in the second pair
        assert time.monotonic() < until
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = python("scripts/resume.py", folder)
    assert done.returncode == 0, done.stderr
    assert [*states(folder).values()] == ["finished"] * 4, "the two that were cut off among them"

    best = yaml.safe_load((folder / "best.yaml").read_text())["best"]
    there = SweepFolder(folder)
    scores = {job.name: there.state(job).score for job in there.jobs()}
    assert best.pop("score") == max(scores.values())
    (job,) = (
        job
        for job in there.jobs()
        if scores[job.name] == max(scores.values()) and all(job.values[key] == value for key, value in best.items())
    )
    assert 1e-4 <= job.values["algo.learning_rate"] <= 2e-3

    again = python("train.py", *SWEEP, f"hydra.sweep.dir={folder}")
    assert again.returncode == 0, again.stderr
    assert len(states(folder)) == 4
    assert "to run" not in again.stderr
    more = python("scripts/resume.py", folder, "hydra.sweeper.n_trials=5")
    assert more.returncode == 0, more.stderr
    assert len(states(folder)) == 5


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("hydra.sweeper.n_trials=0", "hydra.sweeper.n_trials=0: allowed is at least 1"),
        ("hydra.sweeper.batch=-1", "hydra.sweeper.batch=-1: allowed is at least 1"),
        (
            "hydra.sweeper.params=null",
            "hydra.sweeper.params={}: allowed is at least one key with an interval(), range() or choice()",
        ),
    ],
)
def test_a_mistake_is_one_line(python, tmp_path, override, line):
    done = python("train.py", *SWEEP, f"hydra.sweep.dir={tmp_path / 'sweep'}", override)
    assert done.returncode == 1
    assert done.stderr == f"error: {line}\n"
    assert [*tmp_path.iterdir()] == []
