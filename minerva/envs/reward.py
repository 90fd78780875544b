"""What is done to a reward before an algorithm sees it. Episode statistics and evaluation stay raw."""

from __future__ import annotations

import numpy as np
import torch

from minerva.types import State


class RewardTransform:
    """Scale rewards by the standard deviation of the discounted return, then clip them; each as asked for.

    One scale for all environments (Engstrom et al. 2020, arXiv 2005.12729). The mean is kept: shifting rewards would
    change the task.

    Args:
        num_envs: N.
        gamma: the algorithm's discount in [0, 1].
        scale: whether to scale.
        clip: bound of the result; None for no bound.
    """

    def __init__(self, *, num_envs: int, gamma: float, scale: bool, clip: float | None) -> None:
        self.gamma, self.scale, self.clip = gamma, scale, clip
        self._return = np.zeros(num_envs)
        self._count, self._mean, self._variance = 0, 0.0, 0.0

    def __call__(self, reward: np.ndarray, ended: np.ndarray) -> np.ndarray:
        """The transformed rewards [T, N] of ``reward`` [T, N]; ``ended`` [T, N] says whose episode ended with it."""
        if self.scale:
            reward = reward.copy()
            for t in range(len(reward)):
                # LaTeX: R_t = \gamma R_{t-1} + r_t, \qquad \tilde r_t = r_t / \sqrt{\mathrm{Var}[R]}
                self._return = self.gamma * self._return + reward[t]
                self._update(self._return)
                self._return[ended[t]] = 0
                if self._variance > 0:  # else there is no scale yet
                    reward[t] /= np.sqrt(self._variance)
        return reward if self.clip is None else np.clip(reward, -self.clip, self.clip)

    def restart(self) -> None:
        """All environments begin new episodes."""
        self._return[:] = 0

    def _update(self, batch: np.ndarray) -> None:
        total = self._count + len(batch)
        delta = float(batch.mean()) - self._mean
        squares = self._variance * self._count + float(batch.var()) * len(batch)
        self._variance = (squares + delta**2 * self._count * len(batch) / total) / total
        self._mean += delta * len(batch) / total
        self._count = total

    def state_dict(self) -> State:
        """The running returns and their statistics."""
        moments = (self._count, self._mean, self._variance)
        return {"return": torch.from_numpy(self._return.copy()), "moments": moments}

    def load_state_dict(self, state: State) -> None:
        """Go on where ``state`` was taken."""
        self._return = state["return"].numpy().copy()
        self._count, self._mean, self._variance = state["moments"]
