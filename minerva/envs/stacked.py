"""Observations that remember the last ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from minerva.types import State, Step, VectorEnv


class StackedVectorEnv:
    """A :class:`minerva.types.VectorEnv` whose observations are the last L of another's, the newest last.

    They never reach beyond the episode's beginning: what was before is its first observation, again and again.

    Args:
        env: the other.
        length: L.
    """

    def __init__(self, env: VectorEnv, length: int) -> None:
        self.env: Any = env
        self.num_envs, self.stagger = env.num_envs, env.stagger
        self.spec = replace(env.spec, obs_shape=(length, *env.spec.obs_shape), frame_stack=length)
        self._obs = np.zeros((self.num_envs, *self.spec.obs_shape), env.spec.obs_dtype)

    def reset(self, seed: int) -> np.ndarray:
        """Begin N new episodes. Returns obs [N, L, *obs_shape]."""
        self._obs[:] = self.env.reset(seed)[:, None]
        return self._obs

    def step(self, action: np.ndarray) -> Step:
        """Step all."""
        step = self.env.step(action)
        self._obs[:, :-1] = self._obs[:, 1:]
        self._obs[:, -1] = step.final_obs
        final_obs = self._obs
        if step.final_obs is not step.obs:
            ended = step.terminated | step.truncated
            final_obs = self._obs.copy()
            self._obs[ended] = step.obs[ended, None]
        return step._replace(obs=self._obs, final_obs=final_obs)

    def render(self) -> Any:
        """A picture of the other's first environment."""
        return self.env.render()

    @property
    def frames_a_second(self) -> float:
        """The other's."""
        return self.env.frames_a_second

    def close(self) -> None:
        """Release what the other holds."""
        self.env.close()

    def state_dict(self) -> State:
        """The other's, and what was observed."""
        return {"env": self.env.state_dict(), "obs": torch.from_numpy(self._obs.copy())}

    def load_state_dict(self, state: State) -> np.ndarray:
        """Go to where ``state`` was taken."""
        self.env.load_state_dict(state["env"])
        self._obs[:] = state["obs"].numpy()
        return self._obs
