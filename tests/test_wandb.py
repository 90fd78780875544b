"""Weights & Biases, with the real library, and a server that can fail."""

import math
import os
import pty
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest
import wandb

from tests.conftest import ROOT
from tests.wandb_run import make, row
from tests.wandb_server import WandBServer

LIFE = [sys.executable, "-m", "tests.wandb_run"]


def expected(*steps: int) -> list[tuple[int, dict[str, float]]]:
    return [(step, {k: v for k, v in row(step).items() if not math.isnan(v)}) for step in steps]


def steps_in(run_dir: Path) -> list[int]:
    return pd.read_csv(run_dir / "metrics.csv").step.tolist()


def steps_of(run_dir: Path, kind: str) -> list[list[int]]:
    """The steps in each file of Weights & Biases: a header of 7 bytes, then records, in pieces where a block of 32 KiB ends,
    each after its checksum (4 bytes), length (2) and kind (1; a whole one is 1, a last piece 4)."""
    from wandb.proto.wandb_internal_pb2 import Record

    files = []
    for file in sorted(run_dir.glob(f"wandb/{kind}-*/*.wandb")):
        data, position, record = file.read_bytes(), 7, b""
        files.append([])
        while position < len(data):
            if (left := -position % 2**15) < 7:
                position += left
            length, piece = struct.unpack_from("<HB", data, position + 4)
            record += data[position + 7 : position + 7 + length]
            position += 7 + length
            if piece in (1, 4):
                message, record = Record.FromString(record), b""
                if message.WhichOneof("record_type") == "history":
                    files[-1].append(message.history.step.num)
    return files


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> Iterator[None]:
    """Nothing outside of the test's directory, and no network, which would take long to fail."""
    for name in ("CONFIG", "CACHE", "DATA", "ARTIFACT"):
        monkeypatch.setenv(f"WANDB_{name}_DIR", str(tmp_path / "home"))
    monkeypatch.setenv("NETRC", str(tmp_path / "home" / "netrc"))
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    monkeypatch.setenv("WANDB__FILE_STREAM_TRANSMIT_INTERVAL", "1")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    yield
    wandb.teardown()  # the next test has another environment


@pytest.fixture
def server(monkeypatch) -> Iterator[WandBServer]:
    with WandBServer() as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        yield server


def test_a_video_goes_with_its_row(run_dir):
    (run_dir / "5.mp4").write_bytes(b"not really")
    logger = make(run_dir, step=0, mode="offline")
    logger.video(run_dir / "5.mp4", 5)
    logger.log(row(5), 5)
    logger.log(row(7), 7)
    logger.close()
    wandb.teardown()  # as at the end of a process: its service may still be writing
    assert steps_of(run_dir, "offline-run") == [[5, 7]]
    (media,) = run_dir.glob("wandb/offline-run-*/files/media/videos/eval/*.mp4")
    assert media.read_bytes() == b"not really"


@pytest.fixture
def run_dir(tmp_path) -> Path:
    run_dir = tmp_path / "a_run"
    run_dir.mkdir()
    return run_dir


@pytest.fixture
def live(run_dir) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Lets a process log, see wandb_run.py. Where it pauses, ``meanwhile`` is done."""

    def live(mode: str, step: int, end: int, *options: str, meanwhile=lambda process: None):
        command = [*LIFE, *map(str, (run_dir, mode, step, end)), *options]
        (run_dir / "go").unlink(missing_ok=True)
        with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
            try:
                meanwhile(process)
                (run_dir / "go").touch()
                _, stderr = process.communicate(timeout=60)
            finally:
                process.kill()
            return subprocess.CompletedProcess(command, process.returncode, "", stderr)

    return live


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def run_id(run_dir: Path) -> str:
    return (run_dir / "wandb_id.txt").read_text()


def sync(run_dir: Path) -> None:
    paths = run_dir.glob("wandb/offline-run-*")
    subprocess.run(
        [sys.executable, "-m", "wandb", "sync", *paths], check=True, cwd=run_dir, capture_output=True, timeout=60
    )


class TestGoingOn:
    """After a kill, each row is there once, as in a run that was left alone."""

    def test_offline(self, live, run_dir, server):
        assert live("offline", 0, 500, "kill=5").returncode == -9
        first = run_id(run_dir)
        assert live("offline", 300, 600, "kill=2").returncode == -9, "while it fills in"
        assert live("offline", 300, 600).stderr == ""
        assert len(steps_of(run_dir, "offline-run")) == 1, (
            "wandb sync would stop at an older one, or send its rows again"
        )
        sync(run_dir)
        assert server.rows(first) == expected(*range(100, 601, 100))

        assert live("offline", 400, 800).stderr == ""
        assert steps_of(run_dir, "offline-run")[-1] == [700, 800], "after what was synced"
        sync(run_dir)
        assert server.rows(first) == expected(*range(100, 801, 100))
        assert list(server.lines) == [first] == [run_id(run_dir)]

    def test_online(self, live, run_dir, server):
        def lose_what_follows(process):
            wait_for(lambda: server.has(3))
            server.fault = "hang"

        assert live("online", 0, 600, "pause=3", "kill=6", meanwhile=lose_what_follows).returncode == -9
        server.fault = ""
        assert steps_in(run_dir) == [*range(100, 601, 100)]
        assert server.rows(run_id(run_dir)) == expected(100, 200, 300)

        def all_sent(process):
            wait_for(lambda: server.has(7))

        assert live("online", 500, 700, "pause=7", "kill=7", meanwhile=all_sent).returncode == -9, "400 and 500 too"
        assert live("online", 400, 900).stderr == "", "the server is at 700"
        assert server.rows(run_id(run_dir)) == expected(*range(100, 901, 100))
        assert len(server.lines) == 1

    def test_a_new_start_leaves_nothing_of_the_one_before(self, run_dir):
        for _ in range(2):
            logger = make(run_dir, "offline", 0)
            logger.log(row(100), 100)
            logger.close()
        assert steps_of(run_dir, "offline-run") == [[100]]
        assert [path.name[-8:] for path in run_dir.glob("wandb/offline-run-*")] == [run_id(run_dir)]

    def test_offline_after_online_it_is_another_run_and_has_all(self, run_dir, server):
        (run_dir / "metrics.csv").write_text("step,loss,return\n100,0.5,\n200,0.25,2.0\n")
        make(run_dir, "online", 200).close()
        first = run_id(run_dir)
        make(run_dir, "offline", 200).close()
        assert run_id(run_dir) != first
        sync(run_dir)
        rows = [(100, {"loss": 0.5}), (200, {"loss": 0.25, "return": 2.0})]
        assert server.rows(first) == server.rows(run_id(run_dir)) == rows

    def test_two_runs_have_two_ids(self, tmp_path):
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            make(tmp_path / name, "offline", 0).close()
        assert run_id(tmp_path / "one") != run_id(tmp_path / "two")


class TestFailing:
    """It costs a line and a bounded time, and what W&B lacks is sent later."""

    @staticmethod
    def check(ended: subprocess.CompletedProcess[str], run_dir: Path, says: str, end: int) -> None:
        assert ended.returncode == 0
        (line,) = ended.stderr.splitlines()
        assert line.startswith("logger wandb: off")
        assert says in line
        assert steps_in(run_dir) == [*range(100, end + 1, 100)]

    @pytest.mark.parametrize(
        ("fault", "says"), [("refused", "connection refused"), ("hang", "deadline exceeded"), ("500", "HTTP 500")]
    )
    def test_at_the_begin(self, live, run_dir, server, monkeypatch, fault, says):
        server.fault = fault
        if fault == "refused":
            monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
        begun = time.monotonic()
        ended = live("online", 0, 300, "timeout=1")
        assert time.monotonic() - begun < 60, "not days"
        self.check(ended, run_dir, says, 300)
        assert str(run_dir) in ended.stderr

    def test_without_a_key_nothing_is_asked(self, run_dir, monkeypatch):
        monkeypatch.delenv("WANDB_API_KEY")
        terminal, inside = pty.openpty()
        command = [*LIFE, str(run_dir), "online", "0", "300"]
        ended = subprocess.run(command, cwd=ROOT, stdin=inside, stderr=inside, timeout=60, check=False)
        ended.stderr = os.read(terminal, 10_000).decode()
        self.check(ended, run_dir, "wandb login", 300)

    @pytest.mark.parametrize("fault", ["hang", "reset"])
    def test_in_the_middle_and_to_the_end(self, live, run_dir, server, fault):
        def fail(process):
            wait_for(lambda: server.has(2))
            server.fault = fault

        begun = time.monotonic()
        ended = live("online", 0, 100_000, "timeout=3", "pause=2", meanwhile=fail)
        assert time.monotonic() - begun < 60
        self.check(ended, run_dir, "Timed out", 100_000)
        (server_has,) = server.lines.values()
        assert len(server_has) == 2
        assert steps_of(run_dir, "run") == [[*range(100, 100_001, 100)]], "for wandb sync"

        server.fault = ""
        make(run_dir, "online", 100_000).close()
        assert server.rows(run_id(run_dir)) == expected(*range(100, 100_001, 100))

    def test_the_process_that_wandb_sends_with_is_killed(self, live, run_dir, server):
        def kill(process):
            wait_for(lambda: server.has(2))
            (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            os.kill(int(child), signal.SIGKILL)

        self.check(live("online", 0, 500, "pause=2", meanwhile=kill), run_dir, "", 500)
