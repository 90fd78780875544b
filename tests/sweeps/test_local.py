"""Sweeps of real runs, in processes of this machine."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from minerva.sweeps.folder import SweepFolder
from tests.conftest import ROOT
from tests.test_train import assert_same

TINY = ("env=probe/constant", "trainer.total_steps=2560", "compile=false", "logger=[]")
# Some seconds of training each, in which they can be met.
LONG = (
    "env=probe/continuous_action",
    "trainer.total_steps=12_000",
    "trainer.checkpoints=100",
    "compile=false",
    "logger=[]",
)


def sweep(python, folder: Path, *overrides: str, **env: str) -> subprocess.CompletedProcess[str]:
    return python("train.py", "-m", f"hydra.sweep.dir={folder}", *overrides, PYTHONPATH=".", **env)


def states(folder: Path) -> dict[str, str]:
    """Statuses by name, in the words of the directory alone."""
    there = SweepFolder(folder)
    return {job.name: there.state(job).status for job in there.jobs()}


def only(folder: Path, text: str) -> Path:
    """The run directory whose name has ``text``."""
    (found,) = (folder / job.name for job in SweepFolder(folder).jobs() if text in job.name)
    return found


def test_what_is_finished_is_not_run_again_and_what_is_new_is_added(python, tmp_path):
    folder = tmp_path / "sweep"
    done = sweep(python, folder, *TINY, "seed=0,1")
    assert done.returncode == 0, done.stderr
    assert [*states(folder).values()] == ["finished"] * 2
    assert (only(folder, "seed=0") / "metrics.csv").read_text() != (only(folder, "seed=1") / "metrics.csv").read_text()
    before = {path: path.stat().st_mtime_ns for path in folder.glob("*/run.json")}

    done = sweep(python, folder, "seed=1,2,0", *TINY)  # in another order
    assert done.returncode == 0, done.stderr
    assert "3 jobs: 1 queued, 2 finished; 1 to run" in done.stderr
    assert re.search(r"seed=2.* finished +1\.0 ", done.stderr)
    assert [*states(folder).values()] == ["finished"] * 3
    assert {path: path.stat().st_mtime_ns for path in before} == before, "nothing was run again"


def test_a_job_with_other_values_is_refused_and_the_difference_shown(python, tmp_path):
    folder = tmp_path / "sweep"
    assert sweep(python, folder, *TINY, "seed=0").returncode == 0
    manifest = folder / "sweep.json"
    manifest.write_text(manifest.read_text().replace('"algo.gamma": 0.5', '"algo.gamma": 0.25'))  # as a year ago, say
    done = sweep(python, folder, *TINY, "seed=0,1")
    assert done.returncode == 1
    assert "algo.gamma=0.5: " in done.stderr
    assert "was begun with algo.gamma=0.25; give that, or another sweep_name" in done.stderr
    assert len(states(folder)) == 1


def test_one_mistake_stops_all_before_there_is_a_directory(python, tmp_path):
    done = sweep(python, tmp_path / "sweep", *TINY, "seed=0,1", "algo.gamma=0.9,1.5")
    assert done.returncode == 1
    assert done.stderr == "error: algo.gamma=1.5: allowed is from 0 to 1\n"
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("option", "line"),
    [
        ("hydra.launcher.retry=some", "hydra.launcher.retry=some: allowed is one of failed, none, all"),
        ("hydra.launcher.n_jobs=0", "hydra.launcher.n_jobs=0: allowed is at least 1"),
        ("hydra.launcher.jobs=2", "hydra.launcher.jobs: there is no such key"),
        ("hydra/launcher=slurm", "hydra/launcher=slurm: there is no sbatch here"),
    ],
)
def test_a_mistake_in_the_launcher_is_one_line(python, tmp_path, option, line):
    if "slurm" in option and any((Path(path) / "sbatch").exists() for path in os.environ["PATH"].split(":")):
        pytest.skip("there is an sbatch here")
    done = sweep(python, tmp_path / "sweep", *TINY, "seed=0,1", option)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {line}")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "sweep" / "sweep.json").exists()


def test_a_sweep_of_a_saved_configuration_goes_on_too(python, tmp_path):
    """Hydra sees a copy of it, which is gone when the launcher is."""
    run, folder = tmp_path / "run", tmp_path / "sweep's"
    assert python("train.py", *TINY, f"hydra.run.dir={run}").returncode == 0
    given = ("-cp", str(run / ".hydra"), "-cn", "config", "seed=1,2", "hydra.launcher.retry=all")
    quoted = str(folder).replace("'", "\\'")
    done = python("train.py", "-m", *given, f"hydra.sweep.dir='{quoted}'")
    assert done.returncode == 0, done.stderr
    command = json.loads((folder / "sweep.json").read_text())["command"]
    assert command[1:6] == ["-m", "-cp", str(run / ".hydra"), "-cn", "config"], "without retry=all"
    (only(folder, "seed=2") / "run.json").unlink()
    done = python("scripts/resume.py", folder)
    assert done.returncode == 0, done.stderr
    assert "1 finished; 1 to run" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["-c", "import pathlib; pathlib.Path('@').touch()"],
        ["train.py", "-m", "seed=0", "+hydra.callbacks.x={_target_: pathlib.Path.touch, self: '@'}"],
        ["train.py", "-m", "seed=0", "algo._target_=evil.Algo"],
        ["train.py", "-m", "seed=0", "env.id=evil:Env-v0"],
        ["train.py", "-m", "seed=0", "--config-dir", "@"],
        ["train.py", "-m", "env=../../../evil"],
        ["train.py", "-m", "seed=0", "logger.x=${oc.env:HOME}"],
        ["train.py", "-m", "seed=0", "hydra.launcher.setup=[touch @]"],
        ["train.py", "-m", "seed=0", "hydra.launcher.comment=x\ntouch @"],
        ["train.py", "-m", "hydra.sweeper.params={hydra.callbacks.x._target_: evil.X}"],
        ["train.py", "-m", "hydra/launcher=slurm", "hydra.launcher._target_=evil.X", "seed=0"],
    ],
    ids=lambda words: words[-1][:40],
)
def test_a_strangers_sweep_executes_nothing(python, tmp_path, words):
    folder, proof = tmp_path / "sweep", tmp_path / "proof"
    folder.mkdir()
    command = [word.replace("@", str(proof)) for word in words]
    (folder / "sweep.json").write_text(
        json.dumps({"command": command, "cwd": str(tmp_path), "launcher": "local", "jobs": []})
    )
    (tmp_path / "evil.py").write_text(f"import pathlib; pathlib.Path({str(proof)!r}).touch()")
    done = python("scripts/resume.py", folder, PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {folder / 'sweep.json'}: has ")
    assert "which can execute code; repeat the command" in done.stderr
    assert not proof.exists()


def test_a_sweep_that_was_moved_goes_on_where_it_is(python, tmp_path):
    assert sweep(python, tmp_path / "sweep", *TINY, "seed=0,1").returncode == 0
    (tmp_path / "sweep").rename(tmp_path / "moved")
    (only(tmp_path / "moved", "seed=1") / "run.json").unlink()
    done = python("scripts/resume.py", tmp_path / "moved")
    assert done.returncode == 0, done.stderr
    assert "1 finished; 1 to run" in done.stderr
    assert not (tmp_path / "sweep").exists()


def test_equal_jobs_are_one(python, tmp_path):
    done = sweep(python, tmp_path / "sweep", *TINY, "seed=0,0")
    assert done.returncode == 0, done.stderr
    assert [*states(tmp_path / "sweep").values()] == ["finished"]


def test_a_failure_in_one_batch_stops_no_other(python, tmp_path):
    folder = tmp_path / "sweep"
    ids = (
        "env=gymnasium/any",
        "env.id=Nothing-v7,CartPole-v1",
        "trainer.total_steps=4096",
        "compile=false",
        "logger=[]",
    )
    done = sweep(python, folder, *ids, "hydra.sweeper.max_batch_size=1")
    assert done.returncode == 1
    assert sorted(states(folder).values()) == ["failed", "finished"]
    assert "error: 1 of 2 jobs are not finished" in done.stderr


def test_a_job_that_fails_stops_no_other_and_is_run_again(python, tmp_path):
    folder = tmp_path / "sweep"
    ids = "env.id=CartPole-v1,tests.envs.odd:odd/Faulty-v0,Nothing-v7"
    given = ("env=gymnasium/any", "env.num_envs=4", "algo.num_steps=16", "algo.minibatch_size=32", "trainer.total_steps=2560",
             "trainer.eval_episodes=2", "trainer.final_eval_episodes=2", "compile=false", "logger=[]")  # fmt: skip
    done = sweep(python, folder, *given, ids, FAULT="die")
    assert done.returncode == 1
    assert sorted(states(folder).values()) == ["failed", "failed", "finished"]
    assert re.search(r"Faulty-v0.*: failed: ended by SIGKILL; see .*\.log", done.stderr)
    assert re.search(r"Nothing-v7.*: failed: env.id=Nothing-v7: cannot be made: .*; see .*\.log", done.stderr)
    assert "error: 2 of 3 jobs are not finished" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr

    finished = only(folder, "CartPole") / "run.json"
    before = finished.stat().st_mtime_ns
    again = sweep(python, folder, *given, ids, "hydra.launcher.retry=none")
    assert again.returncode == 1
    assert "2 failed, 1 finished; 0 to run" in again.stderr
    again = sweep(python, folder, *given, ids)
    assert again.returncode == 1, "one can never be made"
    assert sorted(states(folder).values()) == ["failed", "finished", "finished"]
    assert finished.stat().st_mtime_ns == before


def test_all_are_run_again_from_their_beginning_if_so_wished_and_nothing_is_lost(python, tmp_path):
    folder = tmp_path / "sweep"
    assert sweep(python, folder, *TINY, "seed=0").returncode == 0
    run = only(folder, "seed=0")
    done = sweep(python, folder, *TINY, "seed=0", "hydra.launcher.retry=all")
    assert done.returncode == 0, done.stderr
    old = run.with_name(f"{run.name}.old1")
    assert_same(old, run)
    assert json.loads((run / "run.json").read_text())["history"] == []


def begin(folder: Path, *overrides: str) -> subprocess.Popen[str]:
    """A sweep whose jobs have written checkpoints."""
    command = [sys.executable, "train.py", "-m", f"hydra.sweep.dir={folder}", *overrides]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    until(lambda: len([*folder.glob("*/checkpoints/last.pt")]) == 2 or process.poll() is not None)
    assert process.poll() is None, process.communicate()[1]
    return process


def until(met: Callable[[], bool], seconds: float = 120) -> None:
    """Wait."""
    end = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < end
        time.sleep(0.02)


def processes(folder: Path) -> list[str]:
    """Command lines of the processes that have to do with ``folder``."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if any(f"{folder}{after}" in line for after in "/ '"):
            found.append(line)
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep that nothing disturbs."""
    folder = tmp_path_factory.mktemp("whole") / "sweep"
    command = [
        sys.executable,
        "train.py",
        "-m",
        f"hydra.sweep.dir={folder}",
        *LONG,
        "seed=0,1,2",
        "hydra.launcher.n_jobs=2",
    ]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT, pytest.param(signal.SIGHUP, marks=pytest.mark.slow), signal.SIGKILL]
)
def test_a_launcher_that_ends_leaves_no_process_and_its_sweep_goes_on_exactly(python, tmp_path, whole, number):
    folder = tmp_path / "sweep"
    given = (*LONG, "seed=0,1,2", "hydra.launcher.n_jobs=2")
    process = begin(folder, *given)
    process.send_signal(number)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == (-9 if number == signal.SIGKILL else 128 + number)
    until(lambda: not processes(folder), 30)  # after SIGKILL the jobs are told by the kernel
    assert sorted(states(folder).values()) == ["interrupted", "interrupted", "queued"]
    if number != signal.SIGKILL:
        assert "go on with what is not finished:  python scripts/resume.py" in said

    done = python("scripts/resume.py", folder)
    assert done.returncode == 0, done.stderr
    for seed in range(3):
        assert_same(only(whole, f"seed={seed}"), only(folder, f"seed={seed}"))


def test_who_does_not_wait_leaves_it_to_a_process_without_a_terminal(python, tmp_path, whole):
    folder = tmp_path / "sweep"
    given = (*LONG, "seed=0,1,2", "hydra.launcher.n_jobs=2", "hydra.launcher.wait=false")
    done = sweep(python, folder, *given)
    assert done.returncode == 0, done.stderr
    pid = int(re.search(r"have them save and end:  kill (\d+)", done.stderr)[1])
    until(lambda: len([*folder.glob("*/checkpoints/last.pt")]) == 2)
    again = sweep(python, folder, *given)
    assert (again.returncode, again.stderr) == (
        1,
        f"error: hydra.sweep.dir={folder}: another launcher is at work there\n",
    )
    os.kill(pid, signal.SIGTERM)
    until(lambda: not processes(folder))
    assert sorted(states(folder).values()) == ["interrupted", "interrupted", "queued"]
    assert python("scripts/resume.py", folder).returncode == 0
    until(lambda: not processes(folder))
    assert "3 jobs: 3 finished" in (folder / "launcher.log").read_text()
    for seed in range(3):
        assert_same(only(whole, f"seed={seed}"), only(folder, f"seed={seed}"))


def test_a_job_that_is_killed_goes_on_exactly(python, tmp_path, whole):
    folder = tmp_path / "sweep"
    process = begin(folder, *LONG, "seed=0,1,2", "hydra.launcher.n_jobs=2")
    subprocess.run(["pkill", "-KILL", "-f", f"hydra.run.dir='{folder}/.*seed=1"], check=True)
    assert process.wait(timeout=100) == 1
    assert sorted(states(folder).values()) == ["failed", "finished", "finished"]
    assert "ended by SIGKILL" in process.stderr.read()
    assert sweep(python, folder, *LONG, "seed=0,1,2", "hydra.launcher.n_jobs=2").returncode == 0
    for seed in range(3):
        assert_same(only(whole, f"seed={seed}"), only(folder, f"seed={seed}"))


def test_a_second_launcher_is_refused_while_one_is_at_work(python, tmp_path):
    folder = tmp_path / "sweep"
    longer = (*LONG, "trainer.total_steps=100_000", "seed=0,1")
    process = begin(folder, *longer)
    try:
        done = sweep(python, folder, *longer)
        assert done.returncode == 1
        assert done.stderr == f"error: hydra.sweep.dir={folder}: another launcher is at work there\n"
        shown = python("scripts/status.py", folder)
        assert shown.returncode == 0
        assert re.search(r"seed=0.* running .*[\d,]+/\d+,\d+ .* \d:\d\d:\d\d", shown.stdout)
        assert "2 jobs: 2 running" in shown.stdout
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_two_sweeps_without_a_name_do_not_share_a_directory(python):
    done = [python("train.py", "--cfg", "hydra", "-p", "hydra.sweep.dir") for _ in range(2)]
    places = [re.search(r"outputs/sweeps/\S+", one.stdout)[0] for one in done]
    assert places[0] != places[1]


def test_a_name_is_a_directory(python):
    done = python("train.py", "sweep_name=mine", "--cfg", "all", "-p", "hydra.sweep.dir")
    assert "outputs/sweeps/mine" in done.stdout


def test_what_is_no_sweep_is_said(python, tmp_path):
    for script in ("status", "resume"):
        done = python(f"scripts/{script}.py", tmp_path)
        assert done.returncode == 1
        assert done.stderr == f"error: {tmp_path}: not a sweep, there is no sweep.json in it\n"
