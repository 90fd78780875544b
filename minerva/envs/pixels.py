"""MuJoCo tasks as images, and actions that are repeated."""

from __future__ import annotations

import atexit
import weakref
from typing import Any

import gymnasium
import mujoco
import numpy as np
from gymnasium import spaces

# What makes most of the time of a picture without a GPU, and tells nothing of the task.
OFF = (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION, mujoco.mjtRndFlag.mjRND_SKYBOX)

_renderers: weakref.WeakSet[mujoco.Renderer] = weakref.WeakSet()


def _close_all() -> None:
    for renderer in list(_renderers):
        renderer.close()


class Repeat(gymnasium.Wrapper):
    """Does each action ``times`` times, and adds up the rewards; not beyond the episode's end."""

    def __init__(self, env: gymnasium.Env, times: int) -> None:
        super().__init__(env)
        self.times = times

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """So many steps."""
        total = 0.0
        for _ in range(self.times):
            obs, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return obs, total, terminated, truncated, info


class Pixels(gymnasium.Wrapper):
    """Observes what a camera sees: [size, size, 3], uint8.

    Args:
        env: of MuJoCo: dm_control's, or gymnasium's.
        size: height and width.
        camera: its number or its name; -1 is free, and stands still.

    Raises:
        ValueError: there is no MuJoCo in it, or no such camera.
    """

    def __init__(self, env: gymnasium.Env, size: int, camera: int | str) -> None:
        super().__init__(env)
        self.observation_space = spaces.Box(0, 255, (size, size, 3), np.uint8)
        self.size = size
        self._renderer: mujoco.Renderer | None = None
        model, _ = self._mujoco()
        cameras = [mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_CAMERA, i) for i in range(model.ncam)]
        if camera not in cameras and camera not in range(-1, max(1, model.ncam)):
            names = ", ".join(map(str, [*range(-1, model.ncam), *cameras]))
            raise ValueError(f"env.camera={camera}: allowed is one of {names}")
        self.camera = camera if model.ncam else -1

    def reset(self, **kwargs: Any) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode."""
        _, info = self.env.reset(**kwargs)
        return self._see(), info

    def step(self, action: Any) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        """One step."""
        _, reward, terminated, truncated, info = self.env.step(action)
        return self._see(), reward, terminated, truncated, info

    def close(self) -> None:
        """Release the renderer, and the simulator."""
        if self._renderer is not None:
            self._renderer.close()
        self.env.close()

    def _mujoco(self) -> tuple[Any, Any]:
        env: Any = self.env.unwrapped
        physics = getattr(env, "physics", env)
        model, data = getattr(physics, "model", None), getattr(physics, "data", None)
        model, data = getattr(model, "ptr", model), getattr(data, "ptr", data)
        if not isinstance(model, mujoco.MjModel):
            raise ValueError("env.pixels=true: allowed is false, for it has no MuJoCo")
        return model, data

    def _see(self) -> np.ndarray:
        model, data = self._mujoco()
        if self._renderer is None or self._renderer.model is not model:  # some tasks make theirs anew
            self._renderer = self._make(model)
        self._renderer.update_scene(data, camera=self.camera)
        for flag in OFF:
            self._renderer.scene.flags[flag] = 0
        return self._renderer.render()

    def _make(self, model: mujoco.MjModel) -> mujoco.Renderer:
        if self._renderer is not None:
            self._renderer.close()
        renderer = mujoco.Renderer(model, self.size, self.size)
        if not _renderers:
            atexit.register(_close_all)  # before what EGL has registered by now
        _renderers.add(renderer)
        return renderer
