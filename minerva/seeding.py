"""One seed decides everything."""

from __future__ import annotations

import os
import zlib
from typing import Any

import numpy as np
import torch


def derive(seed: int, *keys: int | str) -> int:
    """A seed in [0, 2^32) for one purpose, independent of those for other keys and of neighbouring seeds.

    Args:
        seed: the run's seed, in [0, 2^32).
        keys: what it is for, such as ``derive(0, "train")`` or ``derive(0, env_index, episode)``.
    """
    entropy = [seed, len(keys), *(zlib.crc32(key.encode()) if isinstance(key, str) else key for key in keys)]
    return int(np.random.SeedSequence(entropy).generate_state(1)[0])


def seed_everything(seed: int, device: torch.device) -> None:
    """Seed torch, whose generator draws initial weights, actions and minibatches. NumPy's global one is not used.

    On a GPU, choose deterministic algorithms as well; torch warns of what has none.
    """
    torch.manual_seed(seed)
    if device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS begins
        torch.use_deterministic_algorithms(True, warn_only=True)


class RandomState:
    """torch's random state as a part of the checkpoint.

    Args:
        device: where the networks are; its generator is kept beside the CPU's.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def state_dict(self) -> dict[str, Any]:
        """The states of the generators."""
        cuda = torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None
        return {"cpu": torch.get_rng_state(), "cuda": cuda}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on drawing where ``state`` was taken."""
        torch.set_rng_state(state["cpu"].cpu())
        if state["cuda"] is not None and self.device.type == "cuda":
            torch.cuda.set_rng_state(state["cuda"].cpu(), self.device)
