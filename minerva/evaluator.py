"""Scores a policy on environments of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from minerva.arrays import Act, acting
from minerva.errors import NotFiniteError
from minerva.types import Algorithm, VectorEnv

SCORES = ("eval/return_mean", "eval/return_std", "eval/return_min", "eval/return_max", "eval/length_mean")


class Evaluator:
    """Runs the deterministic policy through the same episodes each time: raw rewards, nothing learned.

    Environment i plays episodes i, i + N, i + 2N, ...; which of them end first does not matter.

    Args:
        env: N environments used for nothing else.
        seed: decides the episodes.
        device: where the networks are; None for the CPU.
    """

    def __init__(self, *, env: VectorEnv, seed: int, device: torch.device | None = None) -> None:
        self.env, self.seed, self.device = env, seed, device or torch.device("cpu")
        self._acting: tuple[Any, Callable[[], Act]] | None = None  # the actor, and what makes it a function

    def __call__(self, algo: Algorithm, episodes: int, max_steps: int) -> dict[str, float]:
        """``eval/return_mean|std|min|max`` and ``eval/length_mean`` over ``episodes`` episodes.

        After ``max_steps`` an episode is counted as it is, since one that never ends would hold up the run; the
        environment's next one is then its continuation.

        Raises:
            NotFiniteError: an observation or a return is not.
            UserError: an environment failed.
        """
        num = self.env.num_envs
        left = np.array([len(range(i, episodes, num)) for i in range(num)])
        total, length = np.zeros(num), np.zeros(num, dtype=np.int64)
        returns, lengths = [], []
        obs = self.env.reset(self.seed)
        if self._acting is None or self._acting[0] is not algo.actor:
            self._acting = algo.actor, acting(algo.actor, self.device, torch.as_tensor(obs).clone())
        act = self._acting[1]()
        while left.any():
            if not np.isfinite(obs.sum()):
                raise NotFiniteError("an observation of an evaluation is not finite: the environment is at fault")
            step = self.env.step(act(obs)[0])
            obs = step.obs
            total += step.reward
            length += 1
            for i in np.flatnonzero(step.terminated | step.truncated | (length == max_steps)):
                if left[i]:
                    if not np.isfinite(total[i]):
                        raise NotFiniteError(f"the return of an evaluation is {total[i]}: the environment is at fault")
                    returns.append(total[i])
                    lengths.append(length[i])
                    left[i] -= 1
                total[i] = length[i] = 0
        scores = np.mean(returns), np.std(returns), np.min(returns), np.max(returns), np.mean(lengths)
        return dict(zip(SCORES, map(float, scores), strict=True))
