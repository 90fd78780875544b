"""``run.json``: what a run was, where and how it ended."""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import platform
import shlex
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from minerva.errors import UserError
from minerva.signals import Stopped
from minerva.trust import typed

ROOT = Path(__file__).parent.parent
LOCK = ".lock"
LARGE = 2**20  # bytes of an untracked file that is not source any more
RESUMABLE = ("last.pt", "previous.pt")  # in checkpoints/: what a run goes on from, and what if that one is damaged
PACKAGES = ("torch", "numpy", "gymnasium", "mujoco", "envpool", "dm_control", "shimmy", "hydra-core", "omegaconf")


def locked(run_dir: Path) -> bool:
    """Whether another process is training in ``run_dir``."""
    if not (run_dir / LOCK).exists():
        return False
    with open(run_dir / LOCK, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared with others who ask
        except OSError:
            return True
    return False


def lock_file(file: IO[str]) -> bool:
    """Lock ``file`` until it is closed; False if another process has it, and not just asked whether somebody has."""
    for _ in range(20):
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(0.05)
    return False


def has_checkpoint(run_dir: Path) -> bool:
    """Whether there is something in ``run_dir`` to go on from."""
    return any((run_dir / "checkpoints" / name).exists() for name in RESUMABLE)


class Run:
    """Keeps ``run.json`` in the run directory true while the body of a ``with`` trains there.

    The file says ``running``, then ``finished``, ``interrupted``, or ``failed`` with the reason. A run that fails before
    :meth:`begin` leaves no new directory behind.

    Args:
        run_dir: the run directory.

    Raises:
        UserError: on entering, when another process is training there.
    """

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self._begun = False
        self._facts: dict[str, Any] = {}

    def __enter__(self) -> Run:
        self.run_dir.mkdir(parents=True, exist_ok=True)
        self._lock = open(self.run_dir / LOCK, "a")
        if not lock_file(self._lock):
            self._lock.close()
            raise UserError(f"hydra.run.dir={self.run_dir}: another process is training there")
        return self

    def begin(self, summary: str) -> None:
        """Everything is built: from here on there is something to keep."""
        self._begun = True
        print(f"{summary}\n{'in':<9}{self._shown}", file=sys.stderr)
        history = self._history()
        self._facts = {
            "status": "running",
            "reason": None,
            "score": None,
            "command": shlex.join(["python", sys.argv[0], *typed()]),
            "start": _now(),
            "end": None,
            "host": platform.node(),
            "cpu": cpu(),
            "python": platform.python_version(),
            "packages": {name: _version(name) for name in PACKAGES},
            "git": _git(),
            "history": history,
        }
        try:
            self._write()
            if not history:
                self._keep_surroundings()
        except OSError as error:
            raise UserError(f"{self.run_dir}: cannot be written to: {error.strerror or error}") from error

    def _keep_surroundings(self) -> None:
        """What it takes to repeat the run, beside its configuration."""
        installed = {f"{found.name}=={found.version}" for found in metadata.distributions()}
        (self.run_dir / "freeze.txt").write_text("".join(f"{line}\n" for line in sorted(installed, key=str.lower)))
        if changes := _changes():
            (self.run_dir / "changes.patch").write_bytes(changes)

    def _history(self) -> list[dict[str, Any]]:
        """What ``run.json`` said before, where this goes on from a checkpoint: of each time it ran."""
        if not has_checkpoint(self.run_dir):
            return []
        try:
            before = json.loads((self.run_dir / "run.json").read_text())
            return [*before.pop("history", []), before]
        except (OSError, ValueError, AttributeError, TypeError):  # none, or a damaged one
            return []

    def fail(self, reason: str) -> None:
        """Do what leaving the ``with`` by an error does, on a thread that ends the process in its place."""
        self.__exit__(UserError, UserError(reason), None)

    def finish(self, score: float) -> float:
        """The run ended well, with ``score``, which is returned. Says what to do next."""
        self._facts.update(status="finished", score=score if math.isfinite(score) else None)
        print(
            f"score {score:.1f}, the eval/return_mean of the last policy; the run is in {self._shown}\n"
            f"score it again:  python scripts/evaluate.py {self._shown}\n"
            f"repeat the run:  {self._again}\n"
            f"watch it:  python scripts/video.py {self._shown}\n"
            f"see its curves:  tensorboard --logdir {self._shown}",
            file=sys.stderr,
        )
        return score

    @property
    def _shown(self) -> str:
        """The run directory as one would type it."""
        near = self.run_dir.is_relative_to(Path.cwd())
        return shlex.quote(str(self.run_dir.relative_to(Path.cwd()) if near else self.run_dir))

    @property
    def _again(self) -> str:
        return f"python train.py -cp {shlex.quote(str(self.run_dir / '.hydra'))} -cn config"

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._begun:
            if error is not None:
                status = "interrupted" if isinstance(error, KeyboardInterrupt | Stopped) else "failed"
                reason = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(": ")
                self._facts.update(status=status, reason=str(error) if isinstance(error, UserError) else reason)
                if has_checkpoint(self.run_dir):
                    print(
                        f"go on from its last checkpoint:  {self._again} hydra.run.dir={self._shown}", file=sys.stderr
                    )
            self._facts["end"] = _now()
            try:
                self._write()
            except OSError as problem:  # a full disk, say, of which the run ended
                print(f"run.json: cannot be written: {problem.strerror}", file=sys.stderr)
        self._lock.close()
        if not self._begun and error is not None:
            self._remove_if_new()

    def _remove_if_new(self) -> None:
        """Take away a directory in which there is nothing but what was put there on the way to the failure."""
        if {path.name for path in self.run_dir.iterdir()} <= {".hydra", LOCK, "train.log"}:
            shutil.rmtree(self.run_dir)
            outputs = Path.cwd() / "outputs"
            if self.run_dir.is_relative_to(outputs):  # then also what is empty between the two
                with contextlib.suppress(OSError):
                    for parent in list(self.run_dir.relative_to(outputs).parents)[:-1]:
                        (outputs / parent).rmdir()

    def _write(self) -> None:
        temporary = self.run_dir / "run.json.tmp"
        temporary.write_text(json.dumps(self._facts, indent=2) + "\n")
        os.replace(temporary, self.run_dir / "run.json")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _version(package: str) -> str | None:
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return None


def cpu() -> str:
    """The kind of CPU: its arithmetic may differ from another's in the last bit."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    found = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    return (
        " ".join(found.get(key, "") for key in ("model name", "cpu family", "model", "stepping")).strip()
        or platform.processor()
    )


def _run_git(*args: str, check: bool = True) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *args], capture_output=True, check=check).stdout


def _changes() -> bytes:
    """What the working tree has that the commit has not, as a patch; untracked files too, but for large ones."""
    try:
        new = _run_git("ls-files", "-z", "--others", "--exclude-standard").decode().split("\0")[:-1]
        large = [name for name in new if (ROOT / name).is_file() and (ROOT / name).stat().st_size > LARGE]
        parts = [f"left out, being larger than {LARGE} bytes: {name}\n".encode() for name in large]
        parts.append(_run_git("diff", "--binary", "HEAD"))
        for name in sorted({*new} - {*large}):
            parts.append(_run_git("diff", "--no-index", "--binary", "/dev/null", name, check=False))
        return b"".join(parts)
    except (OSError, subprocess.CalledProcessError):
        return b""


def _git() -> dict[str, Any] | None:
    """Commit of the code, and whether the working tree differs from it; None outside a repository."""
    try:
        return {
            "commit": _run_git("rev-parse", "HEAD").decode().strip(),
            "dirty": bool(_run_git("status", "--porcelain")),
        }
    except (OSError, subprocess.CalledProcessError):
        return None
