"""Observations that remember the last ones, within an episode."""

from __future__ import annotations

import numpy as np

from minerva.envs.stacked import StackedVectorEnv
from minerva.types import EnvSpec, Step


class Count:
    """Observes how many steps there were; environment i's episodes have i + 2 steps. Their observations begin at 100 times their number."""

    num_envs, stagger = 2, 0
    spec = EnvSpec((1,), "float32", None)

    def reset(self, seed):
        self.time, self.episode = np.zeros(2, int), np.zeros(2, int)
        return self._obs()

    def step(self, action):
        self.time += 1
        ended = self.time == np.arange(2) + 2
        final_obs = self._obs()
        self.episode[ended] += 1
        self.time[ended] = 0
        obs = self._obs() if ended.any() else final_obs
        return Step(obs, np.zeros(2, np.float32), np.zeros(2, bool), ended, final_obs)

    def _obs(self):
        return (100 * self.episode + self.time)[:, None].astype(np.float32)


def test_they_do_not_reach_beyond_a_reset():
    env = StackedVectorEnv(Count(), 3)
    assert (env.spec.obs_shape, env.spec.frame_stack) == ((3, 1), 3)
    assert env.reset(0)[:, :, 0].tolist() == [[0, 0, 0], [0, 0, 0]]
    step = env.step(None)
    assert step.obs[:, :, 0].tolist() == step.final_obs[:, :, 0].tolist() == [[0, 0, 1], [0, 0, 1]]
    step = env.step(None)
    assert step.final_obs[:, :, 0].tolist() == [[0, 1, 2], [0, 1, 2]], "what the episode ended on"
    assert step.obs[:, :, 0].tolist() == [[100, 100, 100], [0, 1, 2]]
    step = env.step(None)
    assert step.final_obs[:, :, 0].tolist() == [[100, 100, 101], [1, 2, 3]]
    assert step.obs[:, :, 0].tolist() == [[100, 100, 101], [100, 100, 100]]
