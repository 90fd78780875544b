"""A sweep's directory: which jobs it has, and what became of each, for whoever sees the files."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import itertools
import json
import os
import re
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from minerva.errors import UserError
from minerva.run import lock_file, locked
from minerva.schema import same_identity
from minerva.signals import SIGNALS

MANIFEST = "sweep.json"
SILENT = 900  # seconds without a sign, after which a job on a machine whose locks are not seen here is taken for dead
SAVED = tuple(128 + number for number in SIGNALS)  # what a run ends with that was asked to
LONGEST = 150  # characters of a directory's name


@dataclass(frozen=True)
class Job:
    """One run of a sweep.

    Attributes:
        name: its directory within the sweep's.
        overrides: what the command line of a single run would say.
        values: all that decides what it computes, as ``{"algo.gamma": 0.99, ...}``.
    """

    name: str
    overrides: list[str]
    values: dict[str, Any] = field(compare=False)


@dataclass
class State:
    """What became of a job.

    Attributes:
        status: ``finished``, ``running``, ``queued``, ``interrupted`` or ``failed``.
        reason: why it failed, in one line.
        score: its last ``eval/return_mean``, once it is finished.
        step, total_steps: environment steps done, and to do.
        seconds: of training, evaluation and saving, over all the times it ran.
        sps: environment steps a second.
    """

    status: str
    reason: str = ""
    score: float | None = None
    step: int = 0
    total_steps: int = 0
    seconds: float = 0.0
    sps: float = 0.0


def job_name(overrides: Sequence[str]) -> str:
    """A directory's name made of ``overrides``: ``algo=ppo,env=dm_control-cheetah-run,seed=0,algo.gamma=0.9``.

    They are in the order of their keys, groups and others without a dot first.

    Where characters are lost, or it would be too long, a hash of them makes it its own.
    """
    text = ",".join(sorted(overrides, key=lambda override: ("." in override.partition("=")[0], override)))
    name = re.sub(r"[^A-Za-z0-9_.,=+~\[\]-]", "-", text)
    if name == text.replace("/", "-") and len(name) <= LONGEST:
        return name or "job"
    return f"{name[: LONGEST - 9]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


class SweepFolder:
    """The directory of a sweep.

    It holds ``sweep.json``, which says what the jobs are; ``logs/NAME.log``, what each printed, and ``logs/NAME.json``, whether it was queued and how its
    process ended; and the run directory of each.

    Args:
        path: the directory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.logs = path / "logs"

    @property
    def manifest(self) -> dict[str, Any]:
        """What ``sweep.json`` says.

        Raises:
            UserError: there is none, or it cannot be read.
        """
        try:
            facts: dict[str, Any] = json.loads((self.path / MANIFEST).read_text())
            return facts
        except FileNotFoundError:
            raise UserError(f"{self.path}: not a sweep, there is no {MANIFEST} in it") from None
        except (OSError, ValueError) as error:
            raise UserError(f"{self.path / MANIFEST}: cannot be read: {error}") from error

    def jobs(self) -> list[Job]:
        """Of all commands that there were."""
        return [Job(**job) for job in self.manifest["jobs"]]

    def states(self) -> dict[str, State]:
        """What became of all jobs, by name."""
        return {job.name: self.state(job) for job in self.jobs()}

    def begin(self, command: Sequence[str], launcher: str, jobs: Sequence[Job]) -> None:
        """Add ``jobs`` to what is there, and keep the command that resumes them.

        Raises:
            UserError: a job of that name is there with other values.
        """
        there = {job.name: job for job in self.jobs()} if (self.path / MANIFEST).exists() else {}
        for job in jobs:
            old = there.setdefault(job.name, job)
            same_identity(old.values, job.values, str(self.path / job.name), "sweep_name")
        facts = {
            "command": list(command),
            "cwd": os.getcwd(),
            "launcher": launcher,
            "jobs": [asdict(job) for job in there.values()],
        }
        temporary = self.path / f"{MANIFEST}.tmp"
        temporary.write_text(json.dumps(facts))
        os.replace(temporary, self.path / MANIFEST)
        self.logs.mkdir(exist_ok=True)

    @contextlib.contextmanager
    def only_one(self) -> Iterator[None]:
        """Keep other launchers away.

        Raises:
            UserError: there is one.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with open(self.path / ".lock", "a") as lock:
            if not lock_file(lock):
                raise UserError(f"hydra.sweep.dir={self.path}: another launcher is at work there")
            yield

    def launching(self) -> bool:
        """Whether a launcher is at work here."""
        return locked(self.path)

    def log(self, name: str) -> Path:
        """What a job prints."""
        return self.logs / f"{name}.log"

    def note(self, name: str, **facts: Any) -> None:
        """Keep what a launcher knows of a job: ``queued=True``, or the ``code`` that its process ended with."""
        temporary = self.logs / f"{name}.tmp"
        temporary.write_text(json.dumps({"time": time.time(), **facts}))
        os.replace(temporary, self.logs / f"{name}.json")

    def noted(self, name: str) -> dict[str, Any]:
        """What :meth:`note` kept last."""
        return _json(self.logs / f"{name}.json")

    def put_aside(self, name: str) -> None:
        """Rename a job's directory, so that it begins anew; nothing is deleted."""
        run_dir = self.path / name
        if run_dir.exists():
            number = next(n for n in itertools.count(1) if not (self.path / f"{name}.old{n}").exists())
            run_dir.rename(self.path / f"{name}.old{number}")

    def state(self, job: Job) -> State:
        """What became of ``job``."""
        run_dir = self.path / job.name
        facts, noted = _json(run_dir / "run.json"), self.noted(job.name)
        state = State(
            status=facts.get("status", "queued"),
            reason=str(facts.get("reason") or ""),
            score=facts.get("score"),
            total_steps=int(job.values.get("trainer.total_steps", 0)),
            **_progress(run_dir / "metrics.csv"),
        )
        code = noted.get("code")
        if state.status == "finished":
            return state
        if locked(run_dir) or (code is None and self._gives_signs(run_dir, facts)):
            state.status, state.reason = "running", ""
        elif noted.get("queued"):
            state.status, state.reason = "queued", ""
        elif state.status == "running" or (code and code not in SAVED and state.status != "failed"):
            state.status, state.reason = "failed", noted.get("reason") or self._last_words(job.name, code)
        return state

    @staticmethod
    def _gives_signs(run_dir: Path, facts: dict[str, Any]) -> bool:
        """Whether a run on another machine, whose lock may not be seen from here, wrote anything lately."""
        if facts.get("status") != "running" or facts.get("host") == os.uname().nodename:
            return False
        times = [path.stat().st_mtime for path in (run_dir / "metrics.csv", run_dir / "run.json") if path.exists()]
        return time.time() - max(times, default=0) < SILENT

    def _last_words(self, name: str, code: int | None) -> str:
        """Why a process ended that did not say so in ``run.json``."""
        if code is not None and code < 0:
            return f"ended by {signal.Signals(-code).name}"
        with contextlib.suppress(OSError):
            with open(self.log(name), "rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
                lines = file.read().decode(errors="replace").splitlines()
            for line in reversed(lines):
                if line.startswith("error: "):
                    return line.removeprefix("error: ")
            if code and lines:
                return lines[-1].strip()
        return (
            "ended without a word, as by SIGKILL or for want of memory" if code is None else f"ended with code {code}"
        )


def _json(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


def _progress(metrics: Path) -> dict[str, Any]:
    """Step, seconds and steps a second by the last whole row of ``metrics.csv``."""
    try:
        with open(metrics, "rb") as file:
            names = file.readline().decode().rstrip("\r\n").split(",")
            file.seek(max(file.tell(), file.seek(0, os.SEEK_END) - 4096))
            rows = file.read().decode(errors="replace").rpartition("\n")[0].splitlines()
        row = dict(zip(names, next(csv.reader(rows[-1:])), strict=True))
        seconds = sum(float(row.get(f"time/{part}") or 0) for part in ("rollout", "update", "eval", "save"))
        return {"step": int(row["step"]), "seconds": seconds, "sps": float(row.get("charts/SPS") or 0)}
    except (OSError, ValueError, StopIteration, KeyError):
        return {}
