"""Jobs as one array of SLURM's, through submitit."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from minerva.errors import UserError
from minerva.signals import SIGNALS
from minerva.sweeps.folder import Job, SweepFolder

# What submitit names alike on all clusters; its other options begin with slurm_.
SHARED = {
    "name",
    "timeout_min",
    "mem_gb",
    "nodes",
    "cpus_per_task",
    "gpus_per_node",
    "tasks_per_node",
    "stderr_to_stdout",
}
PATIENCE = 600  # seconds in which SLURM may not answer


@dataclass
class Task:
    """What a node does: one run, in a process of its own, which is begun again elsewhere when SLURM wants the node back.

    Attributes:
        sweep: the sweep's directory.
        name: the job's.
        command: what to run.
    """

    sweep: Path
    name: str
    command: list[str]

    def __call__(self) -> None:
        """Run it, and wait.

        Raises:
            RuntimeError: it failed.
        """
        folder, received = SweepFolder(self.sweep), []
        folder.note(self.name, queued=False)
        with open(folder.log(self.name), "ab") as log:
            process = subprocess.Popen(self.command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

            def forward(number: int, _: FrameType | None) -> None:
                received.append(number)
                process.send_signal(number)

            for number in SIGNALS:
                signal.signal(number, forward)  # in the place of submitit's own
            code = process.wait()
        wanted = received and code in (128 + received[0], -received[0])  # it ended because it was asked to
        # SLURM does not requeue what ends by itself when it must make room, and what was cancelled must stay so.
        if wanted and signal.SIGINT not in received and is_running(slurm_id()):
            folder.note(self.name, queued=True)
            done = subprocess.run(["scontrol", "requeue", slurm_id()], capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return
            folder.note(self.name, code=code, reason=f"it saved, and could not be requeued: {done.stderr.strip()}")
        else:
            folder.note(self.name, code=code)
        if code:  # for SLURM to count it as failed
            raise RuntimeError(f"{self.name} ended with code {code}")


def slurm_id() -> str:
    """This task's, as squeue shows it."""
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{task}" if array else os.environ["SLURM_JOB_ID"]


def is_running(id: str) -> bool:
    """Whether SLURM has a job as running, and not as one that is cancelled or out of time."""
    command = ["squeue", "--noheader", "--jobs", id, "--format", "%T"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() == "RUNNING"


def alive(ids: Sequence[str]) -> set[str]:
    """Which of ``ids`` SLURM has not done with.

    Raises:
        UserError: there is no SLURM, or it does not answer.
    """
    if not ids:
        return set()
    arrays = ",".join(sorted({id.partition("_")[0] for id in ids}))
    command = ["squeue", "--noheader", "--array", "--jobs", arrays, "--format", "%i"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"squeue: {error}; is there a SLURM here?") from error
    if done.returncode and "Invalid job id" not in done.stderr:
        raise UserError(f"squeue: {' '.join(done.stderr.split())}")
    return {*done.stdout.split()} & {*ids}


class SlurmPool:
    """Gives jobs to SLURM, as one array.

    Args:
        folder: of the sweep.
        command: what a job runs.
        options: of submitit's SlurmExecutor, by its names.
    """

    interval = 5.0
    stays = True

    def __init__(self, folder: SweepFolder, command: Callable[[Job], list[str]], options: dict[str, Any]) -> None:
        self.folder, self.command, self.options = folder, command, options
        self.ids: dict[str, str] = {}
        self._missed: dict[str, int] = {}  # looks in a row that a job was not there
        self._answered = time.monotonic()

    def adopt(self, jobs: Sequence[Job]) -> set[str]:
        """Watch over those of ``jobs`` that SLURM still has from before; returns their names."""
        noted = {job.name: self._id(job.name) for job in jobs}
        there = alive([id for id in noted.values() if id])
        self.ids |= {name: id for name, id in noted.items() if id in there}
        return {*self.ids}

    def _id(self, name: str) -> str:
        path = self.folder.logs / f"{name}.slurm"
        return path.read_text().strip() if path.exists() else ""

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queue ``jobs``.

        Raises:
            UserError: SLURM does not take them.
        """
        if not jobs:
            return
        import submitit

        for job in jobs:  # before a node can say otherwise
            self.folder.note(job.name, queued=True)
        scripts = self.folder.path / "slurm"
        try:
            executor = submitit.AutoExecutor(folder=scripts, cluster="slurm")
            others = {"requeue": True, **self.options.get("additional_parameters", {})}
            options = self.options | {"additional_parameters": others}
            executor.update_parameters(
                **{name if name in SHARED else f"slurm_{name}": value for name, value in options.items()}
            )
            tasks = [Task(self.folder.path, job.name, self.command(job)) for job in jobs]
            submitted = executor.map_array(Task.__call__, tasks)
        except Exception as error:  # submitit's own kinds
            for job in jobs:
                self.folder.note(job.name, code=1, reason="SLURM did not take it")
            raise UserError(f"hydra/launcher=slurm: {' '.join(str(error).split())}") from error
        for job, there in zip(jobs, submitted, strict=True):
            self.ids[job.name] = there.job_id
            (self.folder.logs / f"{job.name}.slurm").write_text(there.job_id)

    def poll(self) -> set[str]:
        """The names of the jobs that are not through.

        Raises:
            UserError: SLURM has not answered for ten minutes.
        """
        try:
            there = alive([*self.ids.values()])
            self._answered = time.monotonic()
        except UserError:  # it is busy, or begins anew
            if time.monotonic() - self._answered > PATIENCE:
                raise
            return {*self.ids}
        for name, id in list(self.ids.items()):
            self._missed[name] = 0 if id in there else self._missed.get(name, 0) + 1
            if self._missed[name] > 1:  # not just between two states
                del self.ids[name]
                if self.folder.noted(name).get("queued"):
                    why = f"SLURM had done with it before it began; {self.folder.path / 'slurm'} has more"
                    self.folder.note(name, code=1, reason=why)
        return {*self.ids}

    def stop(self) -> None:
        """Cancel all."""
        if self.ids:
            subprocess.run(["scancel", *self.ids.values()], check=False, timeout=60)

    kill = stop
