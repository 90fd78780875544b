"""What a launcher does while it waits, with jobs that are made up."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from minerva.sweeps import launcher, local
from minerva.sweeps.folder import Job, State, SweepFolder
from minerva.sweeps.table import eta, summary, table

JOBS = [
    Job(name=f"seed={seed}", overrides=[f"seed={seed}"], values={"seed": seed, "trainer.total_steps": 100})
    for seed in range(3)
]


class Pool:
    """Jobs that are through after some polls, or when they are told to end; a signal comes with the second poll."""

    interval = 0.0

    def __init__(self, folder: SweepFolder, signals: list[int], stays: bool = False, polls: int = 6) -> None:
        self.folder, self.signals, self.stays, self.polls = folder, signals, stays, polls
        self.polled = 0
        self.told: list[str] = []

    def adopt(self, jobs):
        return set()

    def submit(self, jobs):
        self.jobs = [job.name for job in jobs]

    def poll(self):
        self.polled += 1
        if self.polled > 1 and self.signals:
            os.kill(os.getpid(), self.signals.pop(0))
        through = self.polled >= self.polls or "kill" in self.told or ("stop" in self.told and not self.signals)
        return set() if through else set(self.jobs)

    def stop(self):
        self.told.append("stop")

    def kill(self):
        self.told.append("kill")


def run(tmp_path: Path, pool_of, **options) -> tuple[Pool, int]:
    folder = SweepFolder(tmp_path / "sweep")
    pool = pool_of(folder)
    code = 0
    try:
        launcher.run(
            folder, JOBS, pool, command=["train.py"], kind="local", **({"retry": "failed", "wait": True} | options)
        )
    except SystemExit as error:
        code = error.code
    return pool, code


@pytest.mark.parametrize(
    ("answer", "stays", "told", "code", "polled"),
    [
        ("s", False, ["stop"], 130, 3),
        ("", False, ["stop"], 130, 3),
        ("w", False, [], 0, 6),
        ("l", True, [], 130, 2),
        ("", True, [], 130, 2),
        ("s", True, ["stop"], 130, 3),
        ("Wait", True, [], 0, 6),
    ],
)
def test_ctrl_c_asks_once_what_to_do(tmp_path, monkeypatch, capsys, answer, stays, told, code, polled):
    asked = []
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda question: asked.append(question) or answer)
    pool, ended = run(tmp_path, lambda folder: Pool(folder, [signal.SIGINT], stays))
    assert len(asked) == 1
    assert ("[l]eave" in asked[0]) == stays
    assert (pool.told, ended, pool.polled) == (told, code, polled)
    assert ("go on with what is not finished" in capsys.readouterr().err) == (code == 130)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("stays", [False, True])
def test_where_it_cannot_ask_jobs_of_this_machine_end_and_others_stay(tmp_path, monkeypatch, number, stays):
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False)
    pool, code = run(tmp_path, lambda folder: Pool(folder, [number], stays))
    assert pool.told == ([] if stays else ["stop"])
    assert code == 128 + number
    assert signal.getsignal(number) is not None
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_ctrl_c_ends_the_jobs_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False)
    pool, code = run(tmp_path, lambda folder: Pool(folder, [signal.SIGINT, signal.SIGINT]))
    assert pool.told == ["stop", "kill"]
    assert code == 130


def test_two_ctrl_c_leave_the_jobs_of_a_cluster_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False)

    class Twice(Pool):
        def poll(self):
            if self.polled == 1:
                os.kill(os.getpid(), signal.SIGINT)
            return super().poll()

    pool, code = run(tmp_path, lambda folder: Twice(folder, [signal.SIGINT], stays=True))
    assert (pool.told, code) == ([], 130)


def test_ctrl_c_at_the_question_is_no_answer(tmp_path, monkeypatch):
    def impatient(question: str) -> str:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)
        raise AssertionError("it goes through")

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr("builtins.input", impatient)
    pool, code = run(tmp_path, lambda folder: Pool(folder, [signal.SIGINT], stays=True))
    assert (pool.told, code) == ([], 130)


def finish(folder: Path, name: str, status: str, **facts) -> None:
    (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / name / "run.json").write_text(json.dumps({"status": status, "host": os.uname().nodename, **facts}))


@pytest.mark.parametrize(
    ("retry", "expected"),
    [("failed", {"seed=1", "seed=2"}), ("none", {"seed=2"}), ("all", {"seed=0", "seed=1", "seed=2"})],
)
def test_what_is_run_again(tmp_path, retry, expected):
    finish(tmp_path / "sweep", "seed=0", "finished", score=1.5)
    finish(tmp_path / "sweep", "seed=1", "failed", reason="it was too hard")
    finish(tmp_path / "sweep", "seed=2", "interrupted")
    pool, _ = run(tmp_path, lambda folder: Pool(folder, []), retry=retry)
    assert set(pool.jobs) == expected
    assert (tmp_path / "sweep" / "seed=0.old1").exists() == (retry == "all")


def test_states_are_read_from_files_alone(tmp_path):
    folder = SweepFolder(tmp_path)
    folder.logs.mkdir()
    assert folder.state(JOBS[0]) == State("queued", total_steps=100)

    finish(tmp_path, "seed=0", "running")
    (tmp_path / "seed=0" / "metrics.csv").write_text(
        "step,charts/SPS,time/rollout,time/update,time/eval,time/save\n10,5.0,1.0,1.0,0.0,0.0\n25,12.5,1.5,0.5,2.0,1.0\n40,1"
    )
    state = folder.state(JOBS[0])
    assert (state.step, state.sps, state.seconds) == (25, 12.5, 5.0), "by the last whole row"
    assert eta(state) == 75 * 5 / 25
    assert (state.status, state.reason) == ("failed", "ended without a word, as by SIGKILL or for want of memory")
    folder.note("seed=0", queued=True)
    assert folder.state(JOBS[0]).status == "queued"
    folder.note("seed=0", code=-9)
    assert (folder.state(JOBS[0]).status, folder.state(JOBS[0]).reason) == ("failed", "ended by SIGKILL")

    finish(tmp_path, "seed=1", "running", host="another")
    assert folder.state(JOBS[1]).status == "running", "its lock may not be seen from here"
    long_ago = time.time() - 3600
    os.utime(tmp_path / "seed=1" / "run.json", (long_ago, long_ago))
    assert folder.state(JOBS[1]).status == "failed"

    folder.note("seed=1", code=-9)
    os.utime(tmp_path / "seed=1" / "run.json")
    assert folder.state(JOBS[1]).reason == "ended by SIGKILL", "whatever its signs of life say"

    finish(tmp_path, "seed=2", "interrupted", reason="Stopped: SIGTERM")
    folder.note("seed=2", code=143)
    assert folder.state(JOBS[2]).status == "interrupted"
    folder.note("seed=2", code=1)
    folder.log("seed=2").write_text("something\nerror: env.id=X: cannot be made\ngo on\n")
    assert (folder.state(JOBS[2]).status, folder.state(JOBS[2]).reason) == ("failed", "env.id=X: cannot be made")
    states = {job.name: folder.state(job) for job in JOBS}
    assert summary(states) == "3 jobs: 3 failed"
    assert table(states, folder).row_count == 3


def test_a_damaged_file_is_no_hindrance(tmp_path):
    folder = SweepFolder(tmp_path)
    for content in ("", "[", "[1]", "null"):
        (tmp_path / "seed=0").mkdir(exist_ok=True)
        (tmp_path / "seed=0" / "run.json").write_text(content)
        (tmp_path / "seed=0" / "metrics.csv").write_text(content)
        assert folder.state(JOBS[0]).status == "queued"


def test_each_job_has_its_own_gpu_and_cores(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    folder = SweepFolder(tmp_path)
    folder.logs.mkdir()
    show = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'], os.environ['OMP_NUM_THREADS'], sorted(os.sched_getaffinity(0)))"
    pool = local.LocalPool(folder, lambda job: [sys.executable, "-c", show], None, None, cuda=True)
    assert pool.n_jobs == 2
    pool.submit(JOBS[:2])
    while pool.poll():
        time.sleep(0.01)
    said = [folder.log(job.name).read_text().split(maxsplit=2) for job in JOBS[:2]]
    assert [gpu for gpu, *_ in said] == ["3", "5"]
    if len(os.sched_getaffinity(0)) > 1:
        assert not {*json.loads(said[0][2])} & {*json.loads(said[1][2])}
