"""Sweeps on a real SLURM: ``scripts/slurm_test_cluster.sh up``, then ``pytest -m slurm``."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.sweeps.test_local import LONG, TINY, only, states, sweep, until
from tests.test_train import assert_same, rows
from tests.test_wandb import home, server  # noqa: F401, fixtures

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]
SLURM = ("hydra/launcher=slurm", "hydra.launcher.cpus_per_task=1")


@pytest.fixture(autouse=True, scope="module")
def cluster() -> None:
    if not shutil.which("sinfo") or subprocess.run(["sinfo"], capture_output=True, check=False).returncode:
        pytest.skip("there is no SLURM here: scripts/slurm_test_cluster.sh up, and source the file that it names")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What nothing disturbs, on this machine."""
    folder = tmp_path_factory.mktemp("whole") / "sweep"
    command = [sys.executable, "train.py", "-m", f"hydra.sweep.dir={folder}", *LONG, "seed=0,1,2,3", "threads=1"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder


def begin(folder: Path, *overrides: str) -> subprocess.Popen[str]:
    command = [sys.executable, "train.py", "-m", f"hydra.sweep.dir={folder}", *SLURM, *overrides]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)


def slurm_id(folder: Path, text: str) -> str:
    name = only(folder, text).name
    return (folder / "logs" / f"{name}.slurm").read_text()


def has_checkpoint(folder: Path, text: str):
    return lambda: (folder / "sweep.json").exists() and (only(folder, text) / "checkpoints" / "last.pt").exists()


def test_an_array_of_four(python, tmp_path):
    folder = tmp_path / "sweep"
    done = sweep(python, folder, *SLURM, *TINY, "seed=0,1,2,3")
    assert done.returncode == 0, done.stderr
    assert [*states(folder).values()] == ["finished"] * 4
    assert any("#SBATCH --array=0-3" in script.read_text() for script in (folder / "slurm").glob("*.sh"))
    done = sweep(python, folder, *SLURM, *TINY, "seed=0,1,2,3")
    assert "4 jobs: 4 finished; 0 to run" in done.stderr


def test_a_job_that_is_killed_stops_no_other(tmp_path, whole, python):
    folder = tmp_path / "sweep"
    given = (*LONG, "seed=0,1,2,3", "threads=1")
    launcher = begin(folder, *given)
    until(has_checkpoint(folder, "seed=2"))
    subprocess.run(["pkill", "-KILL", "-f", f"hydra.run.dir='{folder}/.*seed=2"], check=True)
    said = launcher.communicate(timeout=200)[1]
    assert launcher.returncode == 1
    assert sorted(states(folder).values()) == ["failed"] + ["finished"] * 3
    assert re.search(r"seed=2.*: failed: ended by SIGKILL; see .*\.log", said)
    done = sweep(python, folder, *SLURM, *given)
    assert done.returncode == 0, done.stderr
    assert "3 finished; 1 to run" in done.stderr
    for seed in range(4):
        assert_same(only(whole, f"seed={seed}"), only(folder, f"seed={seed}"))


def preempt(id: str) -> None:
    """Have a job of a higher partition take all nodes; those that must make room are sent SIGTERM."""
    subprocess.run(
        ["sbatch", "-Q", "-p", "high", "-N4", "--exclusive", "-o", "/dev/null", "--wrap", "true"], check=True
    )


def let_die(id: str) -> None:
    """Kill all that runs on a job's node, and SLURM's own there, at once; then say what SLURM finds out after some minutes."""
    node = subprocess.check_output(["squeue", "-h", "-j", id, "-o", "%N"], text=True).strip()
    daemon = (Path(os.environ["SLURM_CONF"]).parent / f"slurmd.{node}.pid").read_text().strip()
    of_jobs = [
        path.parent.name
        for path in Path("/proc").glob("[0-9]*/environ")
        if f"SLURMD_NODENAME={node}" in _text(path).split("\0")
    ]
    jobs = subprocess.check_output(["squeue", "-h", "-w", node, "-o", "%A"], text=True).split()
    steps = subprocess.check_output(["pgrep", "-f", rf"^slurmstepd: \[({'|'.join(jobs)})\."], text=True).split()
    assert of_jobs
    assert steps
    subprocess.run(["kill", "-KILL", daemon, *steps, *of_jobs], check=False)  # some die of another's death
    subprocess.run(["scontrol", "update", f"nodename={node}", "state=down", "reason=died"], check=True)
    subprocess.run(["scripts/slurm_test_cluster.sh", "up"], cwd=ROOT, check=True, capture_output=True)


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace")
    return ""


WAYS = {
    "a signal of SLURM's": lambda id: subprocess.run(["scancel", "--signal=USR2", id], check=True),
    "scontrol requeue": lambda id: subprocess.run(["scontrol", "requeue", id], check=True),
    "preemption": preempt,
    "a node that dies": let_die,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_job_that_must_make_room_is_begun_again_and_goes_on_exactly(tmp_path, whole, way):
    folder = tmp_path / "sweep"
    launcher = begin(folder, *LONG, "seed=0,1", "threads=1")
    until(has_checkpoint(folder, "seed=1"))
    WAYS[way](slurm_id(folder, "seed=1"))
    said = launcher.communicate(timeout=200)[1]
    assert launcher.returncode == 0, said
    log = (folder / "logs" / f"{only(folder, 'seed=1').name}.log").read_text()
    assert "going on at step" in log
    assert "SIGTERM: saved" in log or way != "preemption"
    assert "saved and stopped" not in log or way != "a node that dies"
    for seed in range(2):
        assert_same(only(whole, f"seed={seed}"), only(folder, f"seed={seed}"))


def test_a_requeued_job_is_one_run_of_weights_and_biases(tmp_path, server):  # noqa: F811
    folder = tmp_path / "sweep"
    launcher = begin(folder, *LONG, "seed=0", "threads=1", "logger=[wandb]")
    until(has_checkpoint(folder, "seed=0"))
    WAYS["a signal of SLURM's"](slurm_id(folder, "seed=0"))
    said = launcher.communicate(timeout=200)[1]
    assert launcher.returncode == 0, said
    run = only(folder, "seed=0")
    assert "going on at step" in (folder / "logs" / f"{run.name}.log").read_text()
    (id,) = server.lines
    assert [step for step, _ in server.rows(id)] == rows(run)["step"].tolist()


def test_a_job_that_is_cancelled_saves_and_stays_so_until_the_command_comes_again(python, tmp_path, whole):
    folder = tmp_path / "sweep"
    given = (*LONG, "seed=0,1", "threads=1")
    launcher = begin(folder, *given)
    until(has_checkpoint(folder, "seed=1"))
    subprocess.run(["scancel", slurm_id(folder, "seed=1")], check=True)
    said = launcher.communicate(timeout=200)[1]
    assert launcher.returncode == 1
    assert sorted(states(folder).values()) == ["finished", "interrupted"], said
    done = sweep(python, folder, *SLURM, *given)
    assert done.returncode == 0, done.stderr
    assert_same(only(whole, "seed=1"), only(folder, "seed=1"))


@pytest.mark.slow
def test_a_limit_of_one_minute_is_survived(tmp_path):
    folder = tmp_path / "sweep"
    long = (
        "env=probe/continuous_action",
        "trainer.total_steps=150_000",
        "compile=false",
        "logger=[]",
        "threads=1",
        "algo.update_epochs=20",
    )
    launcher = begin(folder, *long, "seed=0", "hydra.launcher.timeout_min=1", "hydra.launcher.signal_delay_s=20")
    said = launcher.communicate(timeout=500)[1]
    assert launcher.returncode == 0, said
    run = only(folder, "seed=0")
    log = (folder / "logs" / f"{run.name}.log").read_text()
    assert "SIGUSR2: saving" in log
    assert "going on at step" in log
    steps = rows(run)["step"]
    assert steps.is_monotonic_increasing
    assert steps.is_unique
    assert len(steps) > 190


def test_without_waiting_it_is_looked_at_and_gone_on_with_from_elsewhere(python, tmp_path):
    folder = tmp_path / "sweep"
    done = sweep(python, folder, *SLURM, *LONG, "trainer.total_steps=60_000", "seed=0,1", "hydra.launcher.wait=false")
    assert done.returncode == 0, done.stderr
    assert "look:  python scripts/status.py" in done.stderr
    assert set(states(folder).values()) <= {"queued", "running"}
    again = sweep(python, folder, *SLURM, *LONG, "trainer.total_steps=60_000", "seed=0,1", "hydra.launcher.wait=false")
    assert "0 to run, 2 are queued already" in again.stderr
    until(lambda: "running" in states(folder).values())
    shown = python("scripts/status.py", folder)
    assert re.search(r"seed=\d.* running ", shown.stdout)
    done = python("scripts/resume.py", folder, "hydra.launcher.wait=true")
    assert done.returncode == 0, done.stderr
    assert [*states(folder).values()] == ["finished"] * 2


def test_what_slurm_refuses_is_one_line(python, tmp_path):
    done = sweep(python, tmp_path / "sweep", *SLURM, *TINY, "seed=0,1", "hydra.launcher.partition=nowhere")
    assert done.returncode == 1
    assert "error: hydra/launcher=slurm: " in done.stderr
    assert "invalid partition specified: nowhere" in done.stderr
    assert "Traceback" not in done.stderr
