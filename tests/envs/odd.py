"""Environments that minerva must refuse, or survive."""

import os
import sys
import time

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


class Faulty(Odd):
    """Episodes of 20 steps towards a random place. What the environment variable FAULT says happens once, in the 300th step or after it."""

    steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        if self.steps >= 300:
            self.fail(("reset",))
        self.fail(("first reset", "exit in first reset", "hang in first reset"))
        return self.place, {}

    def step(self, action):
        self.steps += 1
        _, _, *_, info = super().step(action)
        self.place = (self.place + 0.1 * (2 * action - 1)).astype(np.float32)
        if self.steps == 300:
            self.fail(("raise", "exit", "hang", "die", "abort"))
        return self.place, float(-abs(self.place).sum()), self.time == 20, False, info

    def fail(self, ways):
        fault = os.environ.get("FAULT")
        if fault not in ways or not self.mine():
            return
        if fault in ("raise", "reset", "first reset"):
            raise ValueError("a pole\nis broken")
        if fault.startswith("exit"):
            sys.exit(0)
        if fault.startswith("hang"):
            time.sleep(1000)
        os.kill(os.getpid(), 9 if fault == "die" else 6)

    def mine(self):
        """Whether this is one of those that are to fail."""
        return True


class FaultyEvaluation(Faulty):
    """Only those fail that are made after the four of training."""

    made = 0

    def __init__(self):
        FaultyEvaluation.made += 1
        self.number = FaultyEvaluation.made

    def mine(self):
        return self.number > 4


class FaultyReplay(Faulty):
    """Only those fail that are reset a second time before they made a step: to go on."""

    resets = 0

    def reset(self, *, seed=None, options=None):
        self.resets += 1
        return super().reset(seed=seed)

    def mine(self):
        return self.resets == 2 and self.steps == 0


class Burst(Faulty):
    """Not a number, for a while."""

    def step(self, action):
        obs, reward, *others = super().step(action)
        return obs, np.nan if 300 <= self.steps < 305 else reward, *others


class Rare(Faulty):
    """Not a number in the middle of one episode in forty."""

    def reset(self, *, seed=None, options=None):
        place, info = super().reset(seed=seed)
        self.bad = place[0] > 0.95
        return place, info

    def step(self, action):
        obs, reward, *others = super().step(action)
        return obs, np.nan if self.bad and self.time == 10 else reward, *others


class Slow(Odd):
    """Takes long to be made."""

    def __init__(self):
        time.sleep(5)


for odd in (Graph, Text, Nan, Endless, Faulty, FaultyEvaluation, FaultyReplay, Burst, Rare, Slow):
    gymnasium.register(f"odd/{odd.__name__}-v0", entry_point=odd)
