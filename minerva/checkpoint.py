"""Checkpoints: tensors and plain values in one file, written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from minerva.errors import UserError
from minerva.schema import same_identity
from minerva.types import State, Stateful


def load(path: Path) -> State:
    """What :meth:`Checkpoints.save` wrote to ``path``. A file from a stranger executes nothing.

    Raises:
        UserError: there is no such file, or it is not a checkpoint.
    """
    try:
        state: State = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such checkpoint") from None
    except Exception as error:  # a damaged file makes the unpickler raise anything
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{path}: not a checkpoint, or a damaged one ({reason})") from error
    if not isinstance(state, dict) or "step" not in state:
        raise UserError(f"{path}: not a checkpoint of minerva")
    return state


class Checkpoints:
    """The two checkpoints of a run: ``last.pt``, to go on from, and ``best.pt``, of the best evaluation so far.

    Args:
        directory: where they are; made when the first is saved.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def restore(self, identity: dict[str, Any], **stateful: Stateful) -> bool:
        """Load ``last.pt`` into what is given by name; False, and nothing done, when there is none.

        Raises:
            UserError: the file is damaged, or of a run of another identity.
        """
        path = self.directory / "last.pt"
        if not path.exists():
            return False
        saved = load(path)
        same_identity(saved.get("identity", {}), identity, str(self.directory.parent))
        try:
            for name, part in stateful.items():
                part.load_state_dict(saved["state"][name])
        except (RuntimeError, LookupError, ValueError, TypeError, AttributeError) as error:
            reason = " ".join(str(error).split())
            raise UserError(f"{path}: does not fit this configuration: {reason}") from error
        return True

    def save(self, *, name: str = "last", facts: dict[str, Any], **stateful: Stateful) -> None:
        """Write ``NAME.pt`` with the states of what is given by name, and plain ``facts`` beside them."""
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / f"{name}.pt"
        temporary = path.with_suffix(".tmp")
        state = {key: part.state_dict() for key, part in stateful.items()}
        with open(temporary, "wb") as file:
            torch.save({**facts, "state": state}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
