"""Environments that minerva must refuse, or survive."""

import gymnasium
import numpy as np
from gymnasium import spaces


class Odd(gymnasium.Env):
    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.time += 1
        return np.zeros(2, np.float32), 1.0, False, False, {}


class Graph(Odd):
    observation_space = spaces.Graph(spaces.Box(-1, 1, (2,)), None)


class Text(Odd):
    action_space = spaces.Text(3)


class Nan(Odd):
    """Episodes of 50 steps; not a number in the fifth and later."""

    episodes = 0

    def reset(self, *, seed=None, options=None):
        self.episodes += 1
        return super().reset(seed=seed)

    def step(self, action):
        obs, reward, *_, info = super().step(action)
        return np.full_like(obs, np.nan) if self.episodes > 4 else obs, reward, self.time == 50, False, info


class Endless(Odd):
    """Never ends."""


for odd in (Graph, Text, Nan, Endless):
    gymnasium.register(f"odd/{odd.__name__}-v0", entry_point=odd)
