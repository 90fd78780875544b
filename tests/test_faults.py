"""What a run meets: environments that fail, hang or die, and disks that do not take what it writes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from minerva.checkpoint import load
from minerva.envs.guarded import Guard
from minerva.errors import UserError
from tests.conftest import ROOT
from tests.test_train import assert_same, rows

RUN = (
    "env=gymnasium/any",
    "env.id=tests.envs.odd:odd/Faulty-v0",
    "env.num_envs=4",
    "env.timeout=2",
    "algo.num_steps=16",
    "algo.minibatch_size=32",
    "logger=[]",
    "compile=false",
    "trainer.total_steps=2560",
    "trainer.logs=10",
    "trainer.eval_episodes=2",
    "trainer.final_eval_episodes=2",
)


def train(python, run: Path, *overrides: str, **env: str) -> subprocess.CompletedProcess[str]:
    return python("train.py", *RUN, f"hydra.run.dir={run}", *overrides, PYTHONPATH=".", **env)


def facts(run: Path) -> dict:
    return json.loads((run / "run.json").read_text())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which nothing happens."""
    run = tmp_path_factory.mktemp("runs") / "whole"
    command = [sys.executable, "train.py", *RUN, f"hydra.run.dir={run}"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return run


@pytest.mark.parametrize(
    ("fault", "code", "line", "failed"),
    [
        ("raise", 1, "environment 0 failed in step 20: ValueError: a pole is broken; what was learned until step", True),
        ("reset", 1, "failed: ValueError: a pole is broken; what was learned until step", True),
        ("exit", 1, "environment 0 failed in step 20: SystemExit: 0; what was learned until step", True),
        ("hang", 1, "hangs: it takes more than env.timeout=2 seconds", False),
        ("die", -9, None, False),
        ("abort", -6, None, False),
    ],
)  # fmt: skip
def test_an_environment_that_fails_ends_the_run_which_goes_on_when_it_is_mended(
    python, tmp_path, whole, fault, code, line, failed
):
    run = tmp_path / "run"
    done = train(python, run, FAULT=fault)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    errors = [said for said in done.stderr.splitlines() if said.startswith("error: ")]
    if line is None:
        assert not errors
        assert facts(run)["status"] == "running", "nothing was left to say otherwise"
    else:
        assert len(errors) == 1
        assert errors[0].startswith("error: env.id=tests.envs.odd:odd/Faulty-v0: ")
        assert line in errors[0]
        assert (facts(run)["status"], facts(run)["reason"]) == ("failed", errors[0].removeprefix("error: "))
        assert "go on from its last checkpoint" in done.stderr
    assert (run / "checkpoints" / "failed.pt").exists() == failed
    assert 0 < load(run / "checkpoints" / "last.pt")["step"] < 2560

    done = train(python, run)
    assert done.returncode == 0, done.stderr
    assert facts(run)["status"] == "finished"
    assert_same(whole, run)


@pytest.mark.parametrize("fault", ["raise", "exit"])
def test_an_environment_that_fails_in_an_evaluation_leaves_what_was_learned(python, tmp_path, fault):
    run = tmp_path / "run"
    done = train(python, run, "env.id=tests.envs.odd:odd/FaultyEvaluation-v0", FAULT=fault)
    assert done.returncode == 1
    said = done.stderr.splitlines()[-1]
    assert re.search(
        r"^error: env\.id=.* failed in step 20: .*; what was learned until step \d+ is in checkpoints/failed\.pt$", said
    )
    assert f"until step {load(run / 'checkpoints' / 'failed.pt')['step']} is" in said


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ("first reset", "failed: ValueError: a pole is broken"),
        ("exit in first reset", "failed: SystemExit: 0"),
        ("hang in first reset", "hangs: it takes more than env.timeout=2 seconds"),
    ],
)
def test_an_environment_that_fails_while_a_run_goes_on_is_named(python, tmp_path, fault, line):
    run, replay = tmp_path / "run", "env.id=tests.envs.odd:odd/FaultyReplay-v0"
    done = train(python, run, replay, FAULT="none")
    assert done.returncode == 0, done.stderr
    before = (run / "checkpoints" / "last.pt").read_bytes()
    done = train(python, run, replay, "trainer.total_steps=5120", FAULT=fault)
    assert done.returncode == 1
    assert line in next(said for said in done.stderr.splitlines() if said.startswith("error: "))
    assert (run / "checkpoints" / "last.pt").read_bytes() == before


def test_a_run_goes_on_exactly_after_what_was_skipped(python, tmp_path):
    """Stopped after new episodes were begun, with other rewards and lengths of episodes than a whole run begins with."""
    burst = (
        "env.id=tests.envs.odd:odd/Rare-v0",
        "trainer.non_finite=skip",
        "reward.scale=true",
        "env.stagger=20",
        "trainer.checkpoints=1000",
    )
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    assert train(python, whole, *burst).returncode == 0
    assert rows(whole)["charts/skipped_updates"].iloc[-1] > 1
    command = [sys.executable, "train.py", *RUN, *burst, f"hydra.run.dir={halves}"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        for line in process.stdout:
            if "nothing is learned from this rollout" in line:
                process.terminate()
    assert process.returncode == 143
    assert load(halves / "checkpoints" / "last.pt")["step"] < 2560
    assert train(python, halves, *burst).returncode == 0
    assert_same(whole, halves)


def test_a_run_may_go_on_with_another_word_for_what_is_not_finite(python, tmp_path):
    run = tmp_path / "run"
    assert train(python, run).returncode == 0
    assert train(python, run, "trainer.total_steps=5120", "trainer.non_finite=skip").returncode == 0
    assert rows(run)["step"].iloc[-1] == 5120


def guard(body: str) -> subprocess.CompletedProcess[str]:
    code = f"import ctypes, time\nfrom minerva.envs.guarded import Guard\nguard = Guard('it', 0.5, print)\n{body}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)


def test_what_hangs_in_c_is_ended():
    done = guard("with guard: ctypes.CDLL(None).sleep(20)")
    assert done.returncode == 1
    assert done.stderr == "error: it hangs: it takes more than env.timeout=0.5 seconds\n"


@pytest.mark.parametrize(
    "trouble", ["sys.stderr = open('/dev/full', 'w')", "sys.stderr.close()", "guard.on_hang = lambda message: 1 / 0"]
)
def test_what_hangs_is_ended_though_nothing_can_be_said(trouble):
    assert guard(f"import sys\n{trouble}\nwith guard: time.sleep(20)").returncode == 1


def test_what_takes_long_but_goes_on_is_not_ended():
    done = guard("for _ in range(40):\n    with guard: time.sleep(0.03)\ntime.sleep(1.2)\nguard.close()")
    assert done.returncode == 0, done.stderr


def test_a_process_that_was_stopped_for_long_is_not_taken_for_one_that_hangs():
    body = "with guard:\n    print('begun', flush=True)\n    time.sleep(0.4)\nprint('through')"
    code = f"import time\nfrom minerva.envs.guarded import Guard\nguard = Guard('it', 1, print)\n{body}"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "begun\n"
        process.send_signal(19)  # SIGSTOP
        time.sleep(3)
        process.send_signal(18)  # SIGCONT
        assert process.stdout.read() == "through\n"


def test_a_guard_that_was_closed_leaves_no_thread():
    before = threading.active_count()
    one = Guard("it", 0.2, None)
    assert threading.active_count() == before + 1
    one.close()
    time.sleep(0.1)
    assert threading.active_count() == before


def test_a_mistake_of_the_user_goes_through_a_guard_as_it_is():
    with pytest.raises(UserError, match=r"^as it is$"), Guard("it", None, None):
        raise UserError("as it is")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB; made where the user may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a file system cannot be mounted here")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_disk_that_is_full_ends_the_run_which_goes_on_when_there_is_room(python, disk):
    run, filler = disk / "run", disk / "filler"
    small = (
        "network.policy_layers=[8]",
        "network.value_layers=[8]",
        "trainer.logs=100_000",
        "trainer.checkpoints=100_000",
    )
    filler.write_bytes(bytes(2**17))
    nothing_to_patch = {"GIT_DIR": str(disk)}  # it may be larger than the disk
    done = train(python, run, *small, "trainer.total_steps=1_000_000", **nothing_to_patch)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    errors = [said for said in done.stderr.splitlines() if said.startswith("error: ")]
    assert len(errors) == 1
    assert "cannot be written: No space left on device" in errors[0]
    step = load(run / "checkpoints" / "last.pt")["step"]
    assert step > 0

    filler.unlink()
    done = train(python, run, *small, f"trainer.total_steps={step + 640}")
    assert done.returncode == 0, done.stderr
    assert rows(run)["step"].tolist() == [*range(64, step + 641, 64)]


def test_a_directory_that_cannot_be_written_is_one_line_and_nothing_is_made(python, disk):
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    done = train(python, disk / "run")
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: hydra.run.dir={disk / 'run'}: {disk} cannot be written to; ")
    assert done.stderr.count("\n") == 1
    assert [*disk.iterdir()] == []


def test_a_log_that_cannot_be_written_ends_the_run(python, tmp_path):
    run = tmp_path / "run"
    (run / "metrics.csv").mkdir(parents=True)
    done = train(python, run)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"error: {run / 'metrics.csv'}: cannot be written: Is a directory"
    assert facts(run)["status"] == "failed"


def test_no_row_of_a_run_that_is_killed_is_behind_its_checkpoint(python, tmp_path):
    run = tmp_path / "run"
    train(python, run, "trainer.logs=1000", "trainer.checkpoints=1000", FAULT="die")
    assert rows(run)["step"].iloc[-1] >= load(run / "checkpoints" / "last.pt")["step"]
