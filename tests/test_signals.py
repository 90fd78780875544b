"""Real signals to real runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from minerva.checkpoint import load
from minerva.signals import SIGNALS, Signals, Stopped
from tests.conftest import ROOT
from tests.test_train import assert_same

RUN = (
    "env=probe/continuous_action",
    "logger=[]",
    "trainer.total_steps=60_000",
    "trainer.logs=60",
    "trainer.eval_episodes=2",
)


def start(run: Path, *overrides: str, after: str = "metrics.csv") -> subprocess.Popen[str]:
    """A run that has written ``after``."""
    command = [sys.executable, "train.py", *RUN, f"hydra.run.dir={run}", *overrides]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while not (run / after).exists():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < until
        time.sleep(0.01)
    return process


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_noted(number, capsys):
    before = signal.getsignal(number)
    with Signals() as signals:
        assert signals.received is None
        os.kill(os.getpid(), number)
        assert signals.received == number
        os.kill(os.getpid(), signal.SIGUSR1)  # a second one changes nothing
        assert signals.received == number
    assert signal.getsignal(number) is before
    assert f"{number.name}: saving after this rollout" in capsys.readouterr().err
    assert Stopped(number).code == 128 + number


def test_a_terminated_run_goes_on_as_if_it_had_not_been(tmp_path, python):
    halves, whole = tmp_path / "halves", tmp_path / "whole"
    process = start(halves)
    process.terminate()
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 143
    assert "SIGTERM: saving after this rollout and its update" in said
    assert "go on from its last checkpoint:  python train.py -cp" in said
    assert "Traceback" not in said
    facts = json.loads((halves / "run.json").read_text())
    assert (facts["status"], facts["reason"]) == ("interrupted", "Stopped: SIGTERM")
    assert 0 < load(halves / "checkpoints" / "last.pt")["step"] < 59_392
    for run in (halves, whole):
        assert python("train.py", *RUN, f"hydra.run.dir={run}").returncode == 0
    assert_same(whole, halves)


def test_a_second_interrupt_ends_at_once(tmp_path):
    # One update of this takes minutes.
    process = start(tmp_path / "run", "algo.update_epochs=100000", after="run.json")
    time.sleep(1)
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
    said = process.communicate(timeout=20)[1]
    assert process.returncode == 130
    assert "Ctrl-C again to end at once" in said
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "interrupted"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_run_that_has_not_begun_leaves_nothing(tmp_path, number, code):
    run = tmp_path / "run"
    process = start(run, "env=gymnasium/any", "env.id=tests.envs.odd:odd/Slow-v0", "env.num_envs=20", after=".lock")
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == code
    assert [*tmp_path.iterdir()] == []
