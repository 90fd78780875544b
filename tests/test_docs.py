"""What the documentation tells a reader to do, done as written."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys

import pytest

from tests.conftest import ROOT

FEWER = (
    "trainer.total_steps=2048",
    "trainer.evaluations=1",
    "trainer.eval_episodes=1",
    "trainer.final_eval_episodes=2",
)
ELSEWHERE = ("make ", "eval ", "hydra/launcher=slurm")  # tried by others: CI, and tests/sweeps/test_slurm.py


def commands(page: str) -> list[str]:
    """Those of a page of docs/, in their order."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```\n(.*?)^```", text, re.M | re.S)
    return [line for block in blocks for line in block.splitlines() if line]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_tutorial(tmp_path):
    """In an empty folder, one command after the other."""
    for name in ("train.py", "scripts", "minerva", "conf"):
        os.symlink(ROOT / name, tmp_path / name)
    tried = [command for command in commands("tutorial.md") if not any(word in command for word in ELSEWHERE)]
    assert len(tried) == 8
    for command in tried:
        program, *words = shlex.split(command)
        assert program == "python"
        if words[0] == "train.py":
            words += [*FEWER, "compile=false", "algo.num_steps=64", "env.num_envs=4", "algo.minibatch_size=64"]
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        if "reproduce" in command:
            assert "identical" in done.stdout
    run = tmp_path / "outputs" / "first"
    assert {"metrics.csv", "learning_curve.png", "checkpoints", "videos"} <= {path.name for path in run.iterdir()}
    report = (tmp_path / "report" / "report.md").read_text()
    assert re.search(r"\| CartPole-v1 \| PPO \| [\d,]+ \| 3 \|", report)
    assert re.search(r"\| CartPole-v1 \| VMPO \| [\d,]+ \| 3 \|", report)
