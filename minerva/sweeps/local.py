"""Jobs as processes of this machine, so many at once."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from minerva.auto import cores
from minerva.run import locked
from minerva.sweeps.folder import Job, SweepFolder


def gpus() -> list[str]:
    """The GPUs that jobs may use, as CUDA_VISIBLE_DEVICES names them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name for name in visible.split(",") if name]
    if not shutil.which("nvidia-smi"):
        return []
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout
    return [str(index) for index, _ in enumerate(filter(None, listed.splitlines()))]


class LocalPool:
    """Runs each job in a process of its own, on cores of its own.

    A process dies with its launcher: it is sent SIGTERM then, saves and ends.

    Args:
        folder: of the sweep.
        command: what a job runs.
        n_jobs: at most so many at once; None for as many as there are cores, or GPUs.
        threads: of a job; None where a job may choose, which is one then.
        cuda: whether each job needs a GPU of its own.
    """

    interval = 0.1
    stays = False

    def __init__(
        self,
        folder: SweepFolder,
        command: Callable[[Job], list[str]],
        n_jobs: int | None,
        threads: int | None,
        cuda: bool,
    ) -> None:
        self.folder, self.command = folder, command
        self.gpus = gpus() if cuda else []
        self.n_jobs = n_jobs or len(self.gpus) or max(1, cores() // (threads or 1))
        mine = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        share = max(1, len(mine) // self.n_jobs)
        # A slot is a share of the cores, and a GPU. Where there are more jobs than cores, they share.
        self.slots = deque((mine[(i * share) % max(len(mine), 1) :][:share], i) for i in range(self.n_jobs))
        self.waiting: deque[Job] = deque()
        self.running: dict[str, tuple[subprocess.Popen[bytes], Any]] = {}

    def adopt(self, jobs: Sequence[Job]) -> set[str]:
        """None: they end with their launcher."""
        return set()

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queue ``jobs``."""
        for job in jobs:
            self.folder.note(job.name, queued=True)
        self.waiting.extend(jobs)

    def poll(self) -> set[str]:
        """Start what there is room for; returns the names of the jobs that are not through."""
        for name, (process, slot) in list(self.running.items()):
            if process.poll() is not None:
                self.folder.note(name, code=process.returncode)
                self.slots.append(slot)
                del self.running[name]
        for job in list(self.waiting):
            if not self.slots:
                break
            if not locked(self.folder.path / job.name):  # by one that still saves, after its launcher was killed
                self.waiting.remove(job)
                slot = self.slots.popleft()
                self.running[job.name] = self._start(job, *slot), slot
        return {*self.running, *(job.name for job in self.waiting)}

    def stop(self) -> None:
        """Have those that run save and end, and start no more."""
        self.waiting.clear()
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End all at once."""
        self.waiting.clear()
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        for process, _ in self.running.values():
            if process.poll() is None:
                process.send_signal(number) if number == signal.SIGTERM else os.killpg(process.pid, number)

    def _start(self, job: Job, mine: list[int], index: int) -> subprocess.Popen[bytes]:
        environ = os.environ | {"OMP_NUM_THREADS": str(max(1, len(mine)))}
        if self.gpus:
            environ["CUDA_VISIBLE_DEVICES"] = self.gpus[index % len(self.gpus)]
        parent = os.getpid()

        def prepare() -> None:
            if mine:
                os.sched_setaffinity(0, mine)
            if sys.platform == "linux":
                ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG: when the launcher dies
                if os.getppid() != parent:
                    os._exit(128 + signal.SIGTERM)

        self.folder.note(job.name, queued=False)
        with open(self.folder.log(job.name), "ab") as log:
            return subprocess.Popen(
                self.command(job), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environ,
                start_new_session=True, preexec_fn=prepare,
            )  # fmt: skip
