import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import torch

from minerva.errors import UserError
from minerva.run import PACKAGES, Run


def facts(run_dir: Path) -> dict[str, Any]:
    return json.loads((run_dir / "run.json").read_text())


def fail(run_dir: Path, error: BaseException, *, begun: bool) -> None:
    """A run that ends with ``error``."""
    with Run(run_dir) as run:
        if begun:
            run.begin("")
        raise error


def test_a_run_is_running_and_then_finished(tmp_path, capsys):
    with Run(tmp_path / "run") as run:
        run.begin("PPO on CartPole")
        assert facts(run.run_dir)["status"] == "running"
        assert facts(run.run_dir)["end"] is None
        assert run.finish(12.5) == 12.5
    told, printed = facts(tmp_path / "run"), capsys.readouterr()
    assert (told["status"], told["reason"], told["score"]) == ("finished", None, 12.5)
    assert "PPO on CartPole" in printed.err
    assert "score 12.5" in printed.err
    assert printed.out == ""


def test_what_is_kept_of_a_run(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py", "env=gymnasium/CartPole-v1", "env.kwargs={a: 1}"])
    with Run(tmp_path / "run") as run:
        run.begin("")
        run.finish(0.0)
    told = facts(tmp_path / "run")
    assert told["command"] == "python train.py env=gymnasium/CartPole-v1 'env.kwargs={a: 1}'"
    assert datetime.fromisoformat(told["start"]) <= datetime.fromisoformat(told["end"])
    assert datetime.fromisoformat(told["start"]).utcoffset() is not None
    assert set(told["packages"]) == set(PACKAGES)
    assert told["packages"]["torch"] == torch.__version__
    assert told["python"] == ".".join(map(str, sys.version_info[:3]))
    assert told["git"] is None or (len(told["git"]["commit"]) == 40 and isinstance(told["git"]["dirty"], bool))


def test_what_it_takes_to_repeat_a_run_is_kept(tmp_path, monkeypatch):
    """A repository with a change and a new file: its patch makes the one from the other."""
    repository, copy = tmp_path / "repository", tmp_path / "copy"

    def git(where: Path, *args: str) -> str:
        values = ("-c", "user.name=a", "-c", "user.email=a@b")
        return subprocess.run(["git", *values, "-C", where, *args], check=True, capture_output=True, text=True).stdout

    (repository / "minerva").mkdir(parents=True)
    (repository / "minerva" / "run.py").write_text("old\n")
    git(repository, "init", "-q")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "one")
    monkeypatch.setattr("minerva.run.ROOT", repository)

    with Run(tmp_path / "clean") as run:
        run.begin("")
    assert facts(tmp_path / "clean")["git"] == {"commit": git(repository, "rev-parse", "HEAD").strip(), "dirty": False}
    assert not (tmp_path / "clean" / "changes.patch").exists()
    frozen = (tmp_path / "clean" / "freeze.txt").read_text().splitlines()
    assert f"pytest=={pytest.__version__}" in frozen

    (repository / "minerva" / "run.py").write_text("new\n")
    (repository / "added.bin").write_bytes(bytes(range(256)))
    (repository / "film.mp4").write_bytes(bytes(2**20 + 1))
    with Run(tmp_path / "dirty") as run:
        run.begin("")
    subprocess.run(["git", "clone", "-q", repository, copy], check=True)
    git(copy, "apply", str(tmp_path / "dirty" / "changes.patch"))
    assert (copy / "minerva" / "run.py").read_text() == "new\n"
    assert (copy / "added.bin").read_bytes() == bytes(range(256))
    assert not (copy / "film.mp4").exists()
    assert b"film.mp4" in (tmp_path / "dirty" / "changes.patch").read_bytes().splitlines()[0], "it is said"


def test_a_directory_that_takes_no_more_is_named(tmp_path, monkeypatch):
    def full() -> bytes:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("minerva.run._changes", full)
    with (
        pytest.raises(UserError, match=r"run: cannot be written to: No space left on device$"),
        Run(tmp_path / "run") as run,
    ):
        run.begin("")
    assert facts(tmp_path / "run")["status"] == "failed"


def test_a_run_that_goes_on_keeps_what_was_before(tmp_path):
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "run" / "checkpoints" / "last.pt").touch()
    for reason in ("first", "second"):
        with pytest.raises(RuntimeError):
            fail(tmp_path / "run", RuntimeError(reason), begun=True)
    with Run(tmp_path / "run") as run:
        run.begin("")
    history = facts(tmp_path / "run")["history"]
    assert [(then["status"], then["reason"]) for then in history] == [
        ("failed", "RuntimeError: first"),
        ("failed", "RuntimeError: second"),
    ]
    assert history[0]["start"] <= history[0]["end"] <= history[1]["start"]
    (tmp_path / "run" / "run.json").write_text("{")
    with Run(tmp_path / "run") as run:
        run.begin("")
    assert facts(tmp_path / "run")["history"] == []


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (RuntimeError("CUDA\nout of memory"), "failed", "RuntimeError: CUDA out of memory"),
        (UserError("reward is nan at step 7"), "failed", "reward is nan at step 7"),
        (KeyboardInterrupt(), "interrupted", "KeyboardInterrupt"),
    ],
    ids=["failed", "mistake", "interrupted"],
)
def test_how_a_run_ended_and_why(tmp_path, error, status, reason):
    with pytest.raises(type(error)):
        fail(tmp_path / "run", error, begun=True)
    told = facts(tmp_path / "run")
    assert told["status"] == status
    assert told["reason"].rstrip(":") == reason
    assert told["end"] is not None
    assert told["score"] is None


def test_a_run_that_goes_on_is_running_again(tmp_path):
    with pytest.raises(RuntimeError):
        fail(tmp_path / "run", RuntimeError("out of luck"), begun=True)
    with Run(tmp_path / "run") as run:
        run.begin("")
        told = facts(tmp_path / "run")
        assert (told["status"], told["reason"], told["end"]) == ("running", None, None)


ENTER = """
import sys
from pathlib import Path
from minerva.run import Run
with Run(Path(sys.argv[1])) as run:
    run.begin("")
    run.finish(7.0)
"""


def test_another_process_is_refused_while_one_trains(tmp_path, python):
    run_dir = tmp_path / "run"
    with Run(run_dir) as run:
        run.begin("")
        before = facts(run_dir)
        refused = python("-c", ENTER, run_dir)
        assert refused.returncode != 0
        assert f"UserError: hydra.run.dir={run_dir}: another process is training there" in refused.stderr
        assert facts(run_dir) == before
    admitted = python("-c", ENTER, run_dir)
    assert admitted.returncode == 0, admitted.stderr
    assert facts(run_dir)["score"] == 7.0


def test_a_process_that_was_killed_does_not_lock_others_out(tmp_path, python):
    killed = python("-c", ENTER.replace("run.finish(7.0)", "import os; os.kill(os.getpid(), 9)"), tmp_path / "run")
    assert killed.returncode == -9
    assert facts(tmp_path / "run")["status"] == "running"
    with Run(tmp_path / "run") as run:
        run.begin("")
        run.finish(1.0)
    assert facts(tmp_path / "run")["status"] == "finished"


def test_the_lock_is_free_again_after_a_failure(tmp_path):
    run_dir = tmp_path / "run"
    with pytest.raises(RuntimeError):
        fail(run_dir, RuntimeError(), begun=True)
    with Run(run_dir) as run:
        assert run.run_dir == run_dir


@pytest.mark.parametrize(
    "error", [UserError("env.id=x: cannot be made"), KeyboardInterrupt()], ids=["mistake", "Ctrl-C"]
)
def test_a_new_directory_goes_away_when_nothing_was_begun(tmp_path, error):
    run_dir = tmp_path / "outputs" / "run"
    (run_dir / ".hydra").mkdir(parents=True)
    (run_dir / ".hydra" / "config.yaml").write_text("seed: 0\n")
    (run_dir / "train.log").write_text("")
    with pytest.raises(type(error)):
        fail(run_dir, error, begun=False)
    assert not run_dir.exists()
    assert run_dir.parent.exists()


@pytest.mark.parametrize("kept", ["checkpoints/last.pt", "run.json", "notes.txt"])
def test_a_directory_with_anything_in_it_stays_as_it_was(tmp_path, kept):
    (tmp_path / kept).parent.mkdir(exist_ok=True)
    (tmp_path / kept).write_text("precious")
    with pytest.raises(UserError):
        fail(tmp_path, UserError("env.id=x: cannot be made"), begun=False)
    assert (tmp_path / kept).read_text() == "precious"


def test_a_directory_stays_once_the_run_has_begun(tmp_path):
    with pytest.raises(RuntimeError):
        fail(tmp_path / "run", RuntimeError(), begun=True)
    assert facts(tmp_path / "run")["status"] == "failed"
