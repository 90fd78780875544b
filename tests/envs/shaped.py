"""A probe with observations and actions of every kind: the right action depends on the observation, whatever the two are."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

OBSERVATIONS = {
    "vector": spaces.Box(-1, 1, (1,), np.float32),
    "image": spaces.Box(0, 255, (12, 10, 1), np.uint8),
    "sequence": spaces.Box(-1, 1, (4, 2), np.float32),
}
OBSERVATIONS["both"] = spaces.Dict({"picture": OBSERVATIONS["image"], "way": OBSERVATIONS["vector"]})
ACTIONS = {
    "discrete": spaces.Discrete(2),
    "multi": spaces.MultiDiscrete([2, 3]),
    "continuous": spaces.Box(np.float32([-1, 0]), np.float32([1, 4])),
}


class Shaped(gymnasium.Env):
    """Observes a -1 or 1 somewhere in an array; rewards at most 1, and 0 in the mean for who does not look.

    Of ``both`` it is the product of what the two show, so that either by itself tells nothing.
    """

    def __init__(self, observe: str, act: str) -> None:
        self.observe, self.act = observe, act
        self.observation_space, self.action_space = OBSERVATIONS[observe], ACTIONS[act]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.sign = float(self.np_random.choice([-1.0, 1.0]))
        way = float(self.np_random.choice([-1.0, 1.0])) if self.observe == "both" else 1.0
        return self._show(self.sign, way), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        if self.act == "discrete":
            reward = 1.0 if (action == 1) == (self.sign > 0) else -1.0
        elif self.act == "multi":
            wanted = (1, 2) if self.sign > 0 else (0, 0)
            reward = 1.0 if tuple(action) == wanted else -0.2
        else:
            wanted = np.float32([0.5 * self.sign, 2 + self.sign])
            reward = 1.0 - float(np.square((action - wanted) / [0.5, 1]).sum() / 2)
        return self._show(0.0, 1.0), reward, True, False, {}

    def _show(self, sign: float, way: float) -> Any:
        if self.observe == "both":
            return {"picture": show("image", sign * way), "way": show("vector", way)}
        return show(self.observe, sign)


def show(observe: str, sign: float) -> np.ndarray:
    """An array in which ``sign`` can be seen; 0 is nothing."""
    space = OBSERVATIONS[observe]
    obs = np.zeros(space.shape, space.dtype)
    if observe == "image":
        obs[:, slice(5) if sign > 0 else slice(5, None)] = 200 * abs(sign)
    else:
        obs[0] = sign
    return obs


gymnasium.register("test/Shaped-v0", entry_point=Shaped)
