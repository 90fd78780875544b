"""dm_control's tasks without what is around them: the same numbers as through shimmy and gymnasium, in two thirds of the time."""

from __future__ import annotations

from typing import Any

import gymnasium
import mujoco
import numpy as np
from dm_control.rl.control import PhysicsError
from dm_control.utils import rewards
from gymnasium import spaces

from minerva.types import Part

_tolerance = rewards.tolerance


def tolerance(
    x: Any,
    bounds: tuple[float, float] = (0.0, 0.0),
    margin: float = 0.0,
    sigmoid: str = "gaussian",
    value_at_margin: float = 0.1,
) -> Any:
    """dm_control's, to the bit; for a number, without the arrays that it makes of one in a third of a step's time."""
    lower, upper = bounds
    if not all(isinstance(number, float | int) for number in (x, lower, upper)) or lower > upper or margin < 0:
        return _tolerance(x, bounds, margin, sigmoid, value_at_margin)
    if lower <= x <= upper:
        return 1.0
    if margin == 0:
        return 0.0
    distance = np.float64(lower - x if x < lower else x - upper)
    return float(rewards._sigmoids(distance / margin, value_at_margin, sigmoid))


rewards.tolerance = tolerance  # what every reward of the suite is made of


class DMControlEnv(gymnasium.Env):
    """One task, with flat observations, by name.

    Args:
        env: shimmy's, of the registry; it is taken apart.
        max_episode_steps: where an episode is truncated; None for the task's own limit.
    """

    def __init__(self, env: gymnasium.Env, max_episode_steps: int | None) -> None:
        self._shimmy, self._env = env, env._env  # type: ignore[attr-defined]
        self._task, self._physics = self._env.task, self._env.physics
        self._sub_steps, self._limit = self._env._n_sub_steps, self._env._step_limit
        self._max_steps = min(self._limit, max_episode_steps or np.inf)
        assert isinstance(env.observation_space, spaces.Dict)
        self._names = list(env.observation_space)
        self._vectors = all(len(space.shape or ()) == 1 for space in env.observation_space.values())
        self.parts = tuple(Part(name, space.shape or (1,), False) for name, space in env.observation_space.items())
        self.observation_space = spaces.flatten_space(env.observation_space)
        self.action_space = env.action_space
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": round(1 / self._env.control_timestep(), 3)}
        # Halves of a step, which leave positions and velocities up to date; with other integrators it takes one more.
        runge_kutta = self._physics.model.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4.value
        self._halves = self._physics.legacy_step and not runge_kutta
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode; with a ``seed``, of that one."""
        if seed is not None:
            self._shimmy.np_random = np.random.RandomState(seed)  # type: ignore[assignment]
        observation = self._env.reset().observation
        self._steps, self._data = 0, self._physics.data.ptr
        self._warnings = self._data.warning.number  # a view: it counts on
        self._warned = self._warnings.tobytes()
        return self._flat(observation), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """As :class:`dm_control.rl.control.Environment` does."""
        task, physics = self._task, self._physics
        task.before_step(action, physics)
        self._advance()
        task.after_step(physics)
        reward = task.get_reward(physics)
        obs = self._flat(task.get_observation(physics))
        self._steps += 1
        discount = 1.0 if self._steps >= self._limit else task.get_termination(physics)
        terminated = discount is not None and discount <= 0
        truncated = not terminated and (discount is not None or self._steps >= self._max_steps)
        return obs, float(reward or 0), terminated, truncated, {}

    @property
    def physics(self) -> Any:
        """dm_control's."""
        return self._physics

    def render(self) -> np.ndarray:
        """What the first camera sees [480, 480, 3]."""
        picture: np.ndarray = self._physics.render(480, 480, camera_id=0 if self._physics.model.ncam else -1)
        return picture

    def close(self) -> None:
        """Release the simulator."""
        self._shimmy.close()

    def _advance(self) -> None:
        if not self._halves:
            return self._physics.step(self._sub_steps)
        model, data = self._physics.model.ptr, self._data
        mujoco.mj_step2(model, data)
        if self._sub_steps > 1:
            mujoco.mj_step(model, data, self._sub_steps - 1)
        mujoco.mj_step1(model, data)
        if self._warnings.tobytes() != self._warned:
            names = [
                name for name, number in zip(mujoco.mjtWarning.__members__, self._warnings, strict=False) if number
            ]
            raise PhysicsError(f"Physics state is invalid. Warning(s) raised: {', '.join(names)}")
        return None

    def _flat(self, observation: dict[str, Any]) -> np.ndarray:
        parts = [observation[name] for name in self._names]
        return np.concatenate(parts if self._vectors else [np.ravel(part) for part in parts])
