"""Environments so small that what an agent must learn is known exactly. Each isolates one thing that can be broken."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Probe(gymnasium.Env):
    """What the probes share: one number observed, two actions, and episodes of ``length`` steps."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space: spaces.Space = spaces.Discrete(2)
    length = 1
    _time, _observation = 0, 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Begin an episode."""
        super().reset(seed=seed)
        self._time = 0
        self._observation = self.observe()
        return np.full(1, self._observation, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        """One step."""
        reward = self.reward(action)
        self._time += 1
        self._observation = self.observe()
        return np.full(1, self._observation, np.float32), reward, self._time == self.length, False, {}

    def observe(self) -> float:
        """The present observation."""
        return 0.0

    def reward(self, action: Any) -> float:
        """The reward of ``action`` at the present observation."""
        return 1.0


class Constant(Probe):
    """A reward of 1, whatever is done. The value is 1: the value function learns at all."""


class Predictable(Probe):
    """A reward equal to the observation, -1 or 1. So is the value: it depends on the observation."""

    def observe(self) -> float:
        """-1 or 1, by chance."""
        return float(self.np_random.choice([-1.0, 1.0]))

    def reward(self, action: Any) -> float:
        """The observation."""
        return self._observation


class Discounting(Probe):
    """Two steps, observed as 0 and 1, with a reward at the end alone. The values are gamma and 1."""

    length = 2

    def observe(self) -> float:
        """The step within the episode."""
        return float(self._time == 1)

    def reward(self, action: Any) -> float:
        """1 for the second step."""
        return float(self._time == 1)


class Action(Probe):
    """Action 1 is rewarded with 1, action 0 with -1: the policy learns at all."""

    def reward(self, action: Any) -> float:
        """+-1."""
        return 1.0 if action == 1 else -1.0


class ActionAndObservation(Predictable):
    """Rewarded with 1 where the action says whether the observation is positive: the policy depends on it."""

    def reward(self, action: Any) -> float:
        """+-1."""
        return 1.0 if (action == 1) == (self._observation > 0) else -1.0


class ContinuousAction(Predictable):
    """Rewarded with 1 minus the squared distance of the action from half the observation."""

    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def reward(self, action: Any) -> float:
        """At most 1."""
        return 1.0 - float(action[0] - 0.5 * self._observation) ** 2


class Memory(Predictable):
    """What is observed first, -1 or 1, is to be said four steps later, when nothing is: the policy remembers, or gets 0."""

    length = 5
    _first = 0.0

    def observe(self) -> float:
        """-1 or 1, by chance; then 0."""
        if self._time > 0:
            return 0.0
        self._first = super().observe()
        return self._first

    def reward(self, action: Any) -> float:
        """+-1 at the end, 0 before."""
        return (1.0 if (action == 1) == (self._first > 0) else -1.0) if self._time == self.length - 1 else 0.0


class TimeLimit(Probe):
    """A reward of 1 a step for ever, cut every five steps.

    The value is 1 / (1 - gamma) everywhere, but only for who bootstraps where an episode was truncated; else it is less.
    """

    length = 5

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        """One step; truncates."""
        obs, reward, ended, _, info = super().step(action)
        return obs, reward, False, ended, info


for _probe in (Constant, Predictable, Discounting, Action, ActionAndObservation, ContinuousAction, Memory, TimeLimit):
    gymnasium.register(f"probe/{_probe.__name__}-v0", entry_point=f"{__name__}:{_probe.__name__}")
