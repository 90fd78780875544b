"""What the documentation tells a reader to do, done as written."""

from __future__ import annotations

import os
import re
import shlex
import shutil
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


def text_of(page: str) -> str:
    return (ROOT / "docs" / page).read_text(encoding="utf-8")


def commands(text: str) -> list[str]:
    """Those of a page, in their order."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S)
    return [line for language, block in blocks if not language for line in block.splitlines()]


@pytest.mark.parametrize(
    ("section", "files", "best"),
    [("An environment", 2, 45.0), ("An algorithm", 3, 500.0), ("A backbone", 1, 1.0)],
)
def test_what_is_added_as_the_page_says_learns(tmp_path, section, files, best):
    """In a copy of the repository."""
    for name in ("minerva", "conf", "tests", "scripts", "hydra_plugins"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("train.py", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    text = text_of("extending.md").split(f"\n## {section}\n")[1].split("\n## ")[0]
    blocks = re.findall(r"^```(?:python|yaml)\n# (at the end of )?(\S+)\n(.*?)^```", text, re.M | re.S)
    assert len(blocks) == files
    for more, name, code in blocks:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(path.read_text() + "\n\n" + code if more else code)
    environ, scores, runs = {**os.environ}, [], []
    for command in commands(text):
        program, *words = shlex.split(command)
        if program == "export":
            environ |= dict([words[0].replace("$PWD", str(tmp_path)).split("=")])
            continue
        if words[0] == "train.py":
            runs += [word.partition("=")[2] for word in words if word.startswith("hydra.run.dir=")] or ["outputs/run"]
            words += ["trainer.evaluations=1", "compile=false", "logger=[]", f"hydra.run.dir={runs[-1]}"]
        done = subprocess.run(
            [sys.executable, *words],
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        scores += map(float, re.findall(r"^score (\S+),", done.stderr, re.M))
    assert scores
    assert min(scores) > 0.9 * best
    if "mypackage" in text:  # a saved configuration imports nothing that is not allowed
        environ.pop("MINERVA_ALLOW_TARGETS", None)
        again = [sys.executable, "train.py", "-cp", str(tmp_path / runs[0] / ".hydra"), "-cn", "config"]
        done = subprocess.run(again, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 1
        assert re.match(r"error: (env\.id|network\.backbone\._target_)=mypackage", done.stderr)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_tutorial(tmp_path):
    """In an empty folder, one command after the other."""
    for name in ("train.py", "scripts", "minerva", "conf"):
        os.symlink(ROOT / name, tmp_path / name)
    tried = [command for command in commands(text_of("tutorial.md")) if not any(word in command for word in ELSEWHERE)]
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
