"""Checkpoints: tensors and plain values in one file, written whole or not at all."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from minerva.errors import UserError
from minerva.run import RESUMABLE
from minerva.schema import same_identity
from minerva.types import State, Stateful

log = logging.getLogger(__name__)


def load(path: Path) -> State:
    """What :meth:`Checkpoints.save` wrote to ``path``. A file from a stranger executes nothing.

    Raises:
        UserError: there is no such file, or it is not a checkpoint, or it is not what was written.
    """
    try:
        with zipfile.ZipFile(path) as file:
            if damaged := file.testzip():  # by the checksum of each tensor, which torch.load does not look at
                raise ValueError(f"checksum of {damaged}")
        state: State = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such checkpoint") from None
    except Exception as error:  # a damaged file makes the unpickler raise anything
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{path}: not a checkpoint, or a damaged one ({reason})") from error
    kinds = {"step": int, "state": dict, "identity": dict}
    if not isinstance(state, dict) or any(not isinstance(state.get(key, {}), kind) for key, kind in kinds.items()):
        raise UserError(f"{path}: not a checkpoint of minerva, which has a step, an identity and a state")
    return state


def put(saved: State, name: str, part: Stateful) -> None:
    """Load the state of the part ``name`` that :func:`load` read into ``part``.

    Raises:
        UserError: it is not a state that such a part has.
    """
    try:
        state = saved.get("state", {})[name]
        if problem := next(_unlike(part.state_dict(), state, f"state.{name}"), None):
            raise ValueError(problem)
        part.load_state_dict(state)
    except (RuntimeError, LookupError, ValueError, TypeError, AttributeError) as error:
        raise UserError(f"does not fit this configuration: {' '.join(str(error).split())}") from error


def _unlike(own: Any, other: Any, name: str) -> Iterator[str]:
    """One line for each place where ``other`` is not made as ``own`` is. What is empty in ``own`` may be filled by now."""
    if own is None or (other is None and isinstance(own, Tensor)):
        return  # random numbers of a GPU, where there is or was none; another tensor's part cannot load it
    kinds: Any = (float, int) if type(own) is float else type(own)
    if not isinstance(other, kinds):
        yield f"{name} is of {type(other).__name__}, not of {type(own).__name__}"
    elif isinstance(own, Tensor):
        if own.numel() and (own.shape, own.dtype) != (other.shape, other.dtype):
            yield f"{name} is {other.dtype} {list(other.shape)}, not {own.dtype} {list(own.shape)}"
    elif isinstance(own, dict):
        for key, value in own.items():
            yield from _unlike(value, other[key], f"{name}.{key}") if key in other else [f"{name}.{key} is missing"]
    elif isinstance(own, list | tuple) and own:
        if len(own) != len(other):
            yield f"{name} has {len(other)} elements, not {len(own)}"
        for index, pair in enumerate(zip(own, other, strict=False)):
            yield from _unlike(*pair, f"{name}.{index}")


class Checkpoints:
    """The checkpoints of a run: ``last.pt``, to go on from, ``previous.pt``, the one before, and ``best.pt``, of the best evaluation.

    Args:
        directory: where they are; made when the first is saved.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def restore(self, identity: dict[str, Any], **stateful: Stateful) -> bool:
        """Load ``last.pt`` into what is given by name, or ``previous.pt`` where that one is damaged or missing.

        Returns:
            Whether there was one; else nothing is done.

        Raises:
            UserError: both are damaged, or it is of a run of another identity.
        """
        if not any((self.directory / name).exists() for name in RESUMABLE):
            return False
        path, saved = self._newest()
        same_identity(saved.get("identity", {}), identity, str(self.directory.parent))
        try:
            for name, part in stateful.items():
                put(saved, name, part)
        except UserError as error:
            raise UserError(f"{path}: {error}") from error
        return True

    def _newest(self) -> tuple[Path, State]:
        last, previous = (self.directory / name for name in RESUMABLE)
        try:
            return last, load(last)
        except UserError as error:
            if not previous.exists():
                raise
            saved = load(previous)
            log.warning("%s; going on from the one before, %s", error, previous.name)
            with contextlib.suppress(OSError):  # out of the way, lest it become the previous one
                os.replace(last, last.with_name("damaged.pt"))
            return previous, saved

    def save(self, *, name: str = "last", facts: dict[str, Any], **stateful: Stateful) -> None:
        """Write ``NAME.pt`` with the states of what is given by name, and plain ``facts`` beside them.

        Whenever it is stopped, a whole file of that name is there if there was one; what ``last.pt`` was becomes ``previous.pt``.

        Raises:
            UserError: it cannot be written; what was there is as it was.
        """
        content = io.BytesIO()
        torch.save({**facts, "state": {key: part.state_dict() for key, part in stateful.items()}}, content)
        path = self.directory / f"{name}.pt"
        temporary = path.with_suffix(".tmp")
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            with open(temporary, "wb") as file:
                file.write(content.getbuffer())
                file.flush()
                os.fsync(file.fileno())
            if name == "last" and path.exists():
                self._keep_previous(path)
            os.replace(temporary, path)
            _sync(self.directory)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink()
            whole = "; the one before is whole" if path.exists() else ""
            raise UserError(f"{path}: cannot be written: {error.strerror or error}{whole}") from error

    def _keep_previous(self, path: Path) -> None:
        link = path.with_name("previous.tmp")
        link.unlink(missing_ok=True)
        try:
            os.link(path, link)
        except OSError:  # a file system without hard links
            os.replace(path, link)
        os.replace(link, path.with_name("previous.pt"))


def _sync(directory: Path) -> None:
    """Have the names in ``directory`` on disk as well."""
    folder = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
