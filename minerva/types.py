"""What the parts of minerva pass to one another, so that siblings need not import each other.

Shapes are written [T, N, ...]: T steps of N environments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

State = dict[str, Any]
UNBOUNDED = 1e10  # a bound of an action this large is none: dm_control's way to write it


class Part(NamedTuple):
    """One of a Dict observation, a number by itself as (1,); ``image`` says whether it has bytes, in rows and columns."""

    name: str
    shape: tuple[int, ...]
    image: bool


@dataclass(frozen=True)
class EnvSpec:
    """All that a network may know of an environment.

    Attributes:
        obs_shape: shape of one observation, without the batch.
        obs_dtype: ``"float32"``, or ``"uint8"`` for images.
        action: the action space; of one action, without the batch. Networks count discrete actions from 0, whatever its ``start``.
        frame_stack: L, where an observation is the last L of the environment's, the first dimension of its shape; else 1.
        parts: of a Dict observation, in the order in which they are put together into one vector, images last.
    """

    obs_shape: tuple[int, ...]
    obs_dtype: str
    action: spaces.Discrete | spaces.MultiDiscrete | spaces.Box
    frame_stack: int = 1
    parts: tuple[Part, ...] = ()


class Step(NamedTuple):
    """One step of N environments, with the *same-step* meaning on every backend.

    Where an episode ended, ``obs`` is already the first observation of the next one and ``final_obs`` is what the
    episode ended on; elsewhere the two are equal, and one array where no episode ended at all. The arrays are reused: copy
    what you keep.

    Attributes:
        obs: [N, *obs_shape].
        reward: [N] float32, raw.
        terminated: [N] bool; the episode ended by the task itself, its value is zero from here on.
        truncated: [N] bool; the episode was cut (a time limit), its value goes on.
        final_obs: [N, *obs_shape].
    """

    obs: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    final_obs: np.ndarray


@dataclass(frozen=True)
class Rollout:
    """T steps of N environments, as an algorithm learns from them.

    Attributes:
        obs: [T, N, *obs_shape], raw (the network normalises).
        action: [T, N, *action_shape] as the policy sampled it, before squashing and clipping.
        reward: [T, N], scaled where the configuration asks for it.
        terminated, truncated: [T, N] bool.
        log_prob: [T, N], of ``action`` under the policy that acted.
        value: [T, N], V(obs).
        next_value: [T, N], V of what followed ``obs``: of the episode's last observation where one was cut.
        policy: [T, N, P], parameters of the distribution that acted.
    """

    obs: Tensor
    action: Tensor
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    log_prob: Tensor
    value: Tensor
    next_value: Tensor
    policy: Tensor


class Stateful(Protocol):
    """Anything a checkpoint holds; the state is made of tensors and plain values."""

    def state_dict(self) -> State:
        """What it takes to go on."""
        ...

    def load_state_dict(self, state: Any, /) -> Any:
        """Go on where ``state`` was taken."""
        ...


class VectorEnv(Stateful, Protocol):
    """N environments stepped together.

    Attributes:
        spec: of one of them.
        num_envs: N.
        stagger: where it is not 0, the first episodes are cut at different steps up to this one.
    """

    spec: EnvSpec
    num_envs: int
    stagger: int

    def reset(self, seed: int) -> np.ndarray:
        """Begin N new episodes; every random number from here on follows from ``seed``. Returns obs [N, ...]."""
        ...

    def step(self, action: np.ndarray) -> Step:
        """Apply ``action`` [N, ...]; values out of bounds are clipped."""
        ...

    def close(self) -> None:
        """Release what it holds."""
        ...


class RewardTransform(Stateful, Protocol):
    """From raw rewards to those an algorithm learns from."""

    def __call__(self, reward: np.ndarray, ended: np.ndarray) -> np.ndarray:
        """Of ``reward`` [T, N]; ``ended`` [T, N] says whose episode ended with it."""
        ...

    def restart(self) -> None:
        """All environments begin new episodes."""
        ...


class Distribution(Protocol):
    """A batch of action distributions.

    Attributes:
        params: [..., P], all that it takes to build the distribution again.
        kl_parts: the keys of :meth:`kl`.
    """

    params: Tensor
    kl_parts: tuple[str, ...]

    @staticmethod
    def noise(*shape: int, device: torch.device) -> Tensor:
        """Random numbers for :meth:`sample`, of distributions with ``params`` of ``shape``."""
        ...

    def sample(self, noise: Tensor | None = None) -> Tensor:
        """One action for each element of the batch, without gradient; of ``noise``, which is drawn where there is none."""
        ...

    def mode(self) -> Tensor:
        """The sample that stands for the distribution: its likeliest, before squashing."""
        ...

    def action(self, sample: Tensor) -> Tensor:
        """What the environment is given for ``sample``: the same, or squashed into its bounds."""
        ...

    def log_prob(self, sample: Tensor) -> Tensor:
        """log p [...] of the action that ``sample`` becomes; summed over the action's dimensions."""
        ...

    def entropy(self) -> Tensor:
        """Entropy [...] in nats."""
        ...

    def kl(self, new: Any) -> dict[str, Tensor]:
        """KL(self || new) [...] in nats: ``{"kl"}``, or its decoupled parts ``{"mean", "std"}``."""
        ...


class Decision(NamedTuple):
    """What a policy did.

    Attributes:
        action: [N, *action_shape], for the environment.
        sample: the same before squashing, which log-probabilities are taken of.
        policy: [N, P], parameters of the distribution it was drawn from.
    """

    action: Tensor
    sample: Tensor
    policy: Tensor


class Network(Protocol):
    """A policy and a value function; a ``torch.nn.Module``."""

    def act(self, obs: Tensor, noise: Tensor | None = None) -> Decision:
        """Choose actions for ``obs`` [N, *obs_shape]; the likeliest, where chance gives no ``noise``."""
        ...

    def noise(self, *shape: int) -> Tensor:
        """Random numbers [*shape, ...] for as many actions."""
        ...

    def value(self, obs: Tensor) -> Tensor:
        """V(obs) [...] for ``obs`` [..., *obs_shape]."""
        ...

    def distribution(self, params: Tensor) -> Any:
        """The :class:`Distribution` with these ``params`` [..., P]."""
        ...

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """The module's."""
        ...


class Algorithm(Stateful, Protocol):
    """Learns a policy from rollouts.

    Attributes:
        horizon: T, the steps of each environment in one rollout.
        network: what learns.
        actor: the network whose policy acts: the same, or a target.
    """

    horizon: int
    network: Network
    actor: Network

    def update(self, rollout: Rollout, progress: float) -> dict[str, float]:
        """Learn from one rollout; ``progress`` in [0, 1] drives the schedules. Returns metrics, always the same keys."""
        ...


class Logger(Protocol):
    """Somewhere for metrics to go."""

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Record one row of metrics at environment step ``step``."""
        ...

    def video(self, path: Path, step: int) -> None:
        """Show the mp4 ``path``, of the evaluation of ``step``; its row of metrics follows."""
        ...

    def flush(self) -> None:
        """Have what was recorded where it outlives this process; a checkpoint of the same step follows."""
        ...

    def close(self) -> None:
        """Release what it holds."""
        ...
