"""A trained policy, out of its run directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from minerva import config
from minerva.checkpoint import load, put
from minerva.errors import UserError
from minerva.types import Algorithm, EnvSpec


class Policy:
    """What a run learned, for use.

    Attributes:
        spec: the shapes of observations and actions.
        step: environment steps it was trained for.
    """

    def __init__(self, *, algo: Algorithm, spec: EnvSpec, step: int) -> None:
        self.algo, self.spec, self.step = algo, spec, step
        self._module = _Act(algo.actor, spec).eval()

    def predict(self, obs: Any, deterministic: bool = True) -> np.ndarray:
        """Actions for one observation, or for a batch of them.

        Args:
            obs: [*obs_shape] or [N, *obs_shape]; or of a Dict of Boxes, as the environment gives them, one or a batch of each by name.
            deterministic: the likeliest action; else a sample.

        Returns:
            [*action_shape] or [N, *action_shape], in the environment's units and within its bounds, as it counts them.

        Raises:
            ValueError: ``obs`` has another shape, or not all names.
        """
        array = self._flatten(obs) if isinstance(obs, Mapping) else np.asarray(obs)
        shape = self.spec.obs_shape
        single = array.shape == shape
        if not single and array.shape[1:] != shape:
            raise ValueError(f"obs of shape {array.shape}: allowed is {shape}, or a batch of it")
        batch = torch.as_tensor(array[None] if single else array)
        noise = None if deterministic else self.algo.actor.noise(len(batch))
        action = self._module(batch, noise).numpy()
        return action[0] if single else action

    def _flatten(self, obs: Mapping[str, Any]) -> np.ndarray:
        """[..., F] of a Dict observation."""
        parts = self.spec.parts
        if not parts or not {part.name for part in parts} <= obs.keys():
            allowed = ", ".join(part.name for part in parts) or f"an array of the shape {self.spec.obs_shape}"
            raise ValueError(f"obs with {', '.join(obs)}: allowed is {allowed}")
        arrays = [np.asarray(obs[part.name], np.float32) for part in parts]
        for i, (part, array) in enumerate(zip(parts, arrays, strict=True)):
            if part.shape == (1,) and array.shape != (1,) and array.ndim < 2:
                arrays[i] = array[..., None]  # numbers by themselves
        batch = arrays[0].shape[: arrays[0].ndim - len(parts[0].shape)]
        for part, array in zip(parts, arrays, strict=True):
            if array.shape != (*batch, *part.shape):
                raise ValueError(
                    f"obs[{part.name!r}] of shape {array.shape}: allowed is {part.shape}, or a batch of it, as of {parts[0].name}"
                )
        return np.concatenate([array.reshape(*batch, -1) for array in arrays], axis=-1)

    def module(self) -> nn.Module:
        """What turns raw observations [N, *obs_shape] into actions [N, *action_shape], for :func:`torch.export.export`."""
        return self._module


class _Act(nn.Module):
    """Actions within their bounds."""

    low: torch.Tensor
    high: torch.Tensor
    start: torch.Tensor

    def __init__(self, actor: Any, spec: EnvSpec) -> None:
        super().__init__()
        self.actor, self.bounded = actor, isinstance(spec.action, spaces.Box)
        if isinstance(spec.action, spaces.Box):
            self.register_buffer("low", torch.from_numpy(spec.action.low))
            self.register_buffer("high", torch.from_numpy(spec.action.high))
        else:
            self.register_buffer("start", torch.as_tensor(spec.action.start))

    @torch.no_grad()
    def forward(self, obs: torch.Tensor, noise: torch.Tensor | None = None) -> torch.Tensor:
        action: torch.Tensor = self.actor.act(obs, noise).action
        return torch.minimum(torch.maximum(action, self.low), self.high) if self.bounded else action + self.start


def load_policy(run: str | Path, checkpoint: str = "last") -> Policy:
    """The policy that a run learned, on the CPU. Makes the environment that its configuration names, for the shapes.

    Args:
        run: the run directory.
        checkpoint: ``"last"``, ``"best"`` (of many evaluations of few episodes: a lucky one), or ``"failed"``.

    Raises:
        UserError: there is no such run or checkpoint, or the two do not fit.
    """
    path = Path(run) / "checkpoints" / f"{checkpoint}.pt"
    saved = load(path)
    cfg = config.load(Path(run))
    env = config.build(cfg.env, num_envs=1, on_hang=None)
    env.close()
    network = config.network(cfg.network, env.spec, amp=None)
    algo = config.build(cfg.algo, network=network, compile=False)
    try:
        put(saved, "algo", algo)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    return Policy(algo=algo, spec=env.spec, step=saved["step"])
