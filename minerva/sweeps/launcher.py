"""A sweep from its first job to its table: nothing run twice, nothing lost."""

from __future__ import annotations

import shlex
import signal
import sys
import time
from collections.abc import Sequence
from types import FrameType
from typing import Protocol

from minerva.sweeps.folder import Job, State, SweepFolder
from minerva.sweeps.table import summary, table

TELL = 30  # seconds between lines on what is going on, where output is not a terminal


class Pool(Protocol):
    """Where jobs run.

    Attributes:
        interval: seconds between two looks.
        stays: whether its jobs go on without the launcher.
    """

    interval: float
    stays: bool

    def adopt(self, jobs: Sequence[Job]) -> set[str]:
        """The names of the jobs that still run from before, which it watches from now on."""
        ...

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queue ``jobs``."""
        ...

    def poll(self) -> set[str]:
        """Do what is due; the names of the jobs that are not through."""
        ...

    def stop(self) -> None:
        """Have all jobs save and end."""
        ...

    def kill(self) -> None:
        """End all jobs at once."""
        ...


def run(
    folder: SweepFolder, jobs: Sequence[Job], pool: Pool, *, command: Sequence[str], kind: str, retry: str, wait: bool
) -> dict[str, State]:
    """Run those of ``jobs`` that are not finished; returns what became of each, by name.

    Args:
        folder: of the sweep.
        jobs: all that the command asks for.
        pool: where they run.
        command: what resumes the sweep.
        kind: the launcher's name.
        retry: what is run again: ``"failed"``; ``"none"``, not even these; ``"all"``, the finished too, from their beginning.
        wait: until all are through.

    Raises:
        UserError: another launcher is at work there, or a job's configuration is not what it was.
        SystemExit: a signal ended it; its code is 128 and the signal's number.
    """
    jobs = [*{job.name: job for job in jobs}.values()]  # one of each
    with folder.only_one():
        folder.begin(command, kind, jobs)
        before = {job.name: folder.state(job) for job in jobs}
        adopted = pool.adopt(jobs)
        todo = [job for job in jobs if job.name not in adopted and _is_due(before[job.name], retry)]
        if retry == "all":
            for job in todo:
                folder.put_aside(job.name)
        pool.submit(todo)
        say(
            f"{folder.path}: {summary(before)}; {len(todo)} to run"
            + f", {len(adopted)} are queued already" * bool(adopted)
        )
        if wait:
            _Watch(folder, jobs, pool).until_through()
        return {job.name: folder.state(job) for job in jobs}


def _is_due(state: State, retry: str) -> bool:
    if retry == "all":
        return True
    return state.status != "finished" and (state.status != "failed" or retry == "failed")


class _Watch:
    """Waits for jobs, and tells how far they are. A signal ends the waiting."""

    def __init__(self, folder: SweepFolder, jobs: Sequence[Job], pool: Pool) -> None:
        self.folder, self.pool = folder, pool
        self.jobs = {job.name: job for job in jobs}
        self.received: int | None = None
        self.stopping = False

    def until_through(self) -> None:
        """Poll until nothing is left."""
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {number: signal.signal(number, self._note) for number in numbers}
        try:
            left, told = self.pool.poll(), time.monotonic()
            while left:
                time.sleep(self.pool.interval)
                now = self.pool.poll()
                for number, name in enumerate(sorted(left - now), len(self.jobs) - len(left) + 1):
                    self._tell(name, number)
                    told = time.monotonic()
                left = now
                if time.monotonic() - told > TELL:
                    told = time.monotonic()
                    say(summary({name: self.folder.state(job) for name, job in self.jobs.items()}))
                if self.received and not self.stopping and not self._goes_on():
                    break
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        if self.received:
            say(f"go on with what is not finished:  {resume(self.folder)}")
            raise SystemExit(128 + self.received)

    def _note(self, number: int, _: FrameType | None) -> None:
        if self.stopping and number == signal.SIGINT:
            self.pool.kill()
        self.received = number

    def _goes_on(self) -> bool:
        """Decide what becomes of the jobs, now that a signal came. Returns whether there is something left to wait for."""
        answer = "" if self.received != signal.SIGINT or not sys.stdin.isatty() else self._ask()
        if answer == "w" and self.received == signal.SIGINT:
            self.received = None
            return True
        if self.pool.stays and answer != "s":
            say("the jobs stay in the queue")
            return False
        say("stopping: the jobs save and end; Ctrl-C again ends them at once")
        self.stopping = True
        self.pool.stop()
        return True

    def _ask(self) -> str:
        other = "[l]eave them in the queue, " if self.pool.stays else ""
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a second Ctrl-C is an answer, too
        try:
            return (
                input(f"the jobs: {other}[s]top them, they save first and can go on, or [w]ait on? ")
                .strip()
                .lower()[:1]
            )
        except (EOFError, KeyboardInterrupt):
            return ""
        finally:
            signal.signal(signal.SIGINT, self._note)

    def _tell(self, name: str, through: int) -> None:
        state = self.folder.state(self.jobs[name])
        score = f", score {state.score:.1f}" if state.score is not None else ""
        why = f": {state.reason}; see {self.folder.log(name)}" if state.reason else ""
        say(f"{through}/{len(self.jobs)}  {name}: {state.status}{score}{why}")


def report(folder: SweepFolder, states: dict[str, State]) -> None:
    """The table at the end, and what to do next."""
    from rich.console import Console  # here, and not whenever Hydra begins

    Console(stderr=True, highlight=False, width=None if sys.stderr.isatty() else 200).print(table(states, folder))
    say(summary(states))
    say(f"look again:  {status(folder)}")


def status(folder: SweepFolder) -> str:
    """The command that shows how far a sweep is."""
    return f"python scripts/status.py {shlex.quote(str(folder.path))}"


def resume(folder: SweepFolder) -> str:
    """The command that goes on with a sweep."""
    return f"python scripts/resume.py {shlex.quote(str(folder.path))}"


def say(text: str) -> None:
    """A line on standard error."""
    print(text, file=sys.stderr, flush=True)
