"""MuJoCo tasks as images, and actions that are repeated."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import mujoco
import numpy as np
from gymnasium import spaces

# What makes most of the time of a picture without a GPU, and tells nothing of the task.
OFF = (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION, mujoco.mjtRndFlag.mjRND_SKYBOX)


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


@contextmanager
def _apart() -> Iterator[None]:
    """Leave the thread's GL context as it was: dm_control and gymnasium draw into it, and do not look whether it still is theirs."""
    if os.environ.get("MUJOCO_GL") != "egl":
        yield
        return
    from mujoco import egl
    from OpenGL import EGL

    display, context = EGL.eglGetCurrentDisplay(), EGL.eglGetCurrentContext()
    try:
        yield
    finally:
        if context:
            EGL.eglMakeCurrent(display, EGL.EGL_NO_SURFACE, EGL.EGL_NO_SURFACE, context)
        elif egl.EGL_DISPLAY:
            EGL.eglMakeCurrent(egl.EGL_DISPLAY, EGL.EGL_NO_SURFACE, EGL.EGL_NO_SURFACE, EGL.EGL_NO_CONTEXT)


class Camera:
    """Takes pictures of MuJoCo models that look alike; one for many, since to change between renderers takes longer than to render.

    Args:
        size: height and width.
        camera: its number or its name; -1 is free, and stands still.
    """

    def __init__(self, size: int, camera: int | str) -> None:
        self.size, self.camera = size, camera
        self._renderer: mujoco.Renderer | None = None
        self._view, self._option = mujoco.MjvCamera(), mujoco.MjvOption()
        self._option.flags[mujoco.mjtVisFlag.mjVIS_RANGEFINDER] = 0  # as dm_control has it

    def check(self, model: mujoco.MjModel) -> None:
        """Refuse a model that has no such camera.

        Raises:
            ValueError: naming those it has.
        """
        names = [mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_CAMERA, i) for i in range(model.ncam)]
        allowed = [-1, *range(max(1, model.ncam)), *names]  # 0 is the default, and the free one where there is no other
        if self.camera not in allowed:
            raise ValueError(f"env.camera={self.camera}: allowed is one of {', '.join(map(str, allowed))}")

    def see(self, model: mujoco.MjModel, data: mujoco.MjData) -> np.ndarray:
        """[size, size, 3], uint8: each pixel the mean of four, so that less than a pixel's width is seen to move."""
        with _apart():
            return self._see(model, data)

    def _see(self, model: mujoco.MjModel, data: mujoco.MjData) -> np.ndarray:
        if self._renderer is None:
            self._renderer = self._make(model)
        everything = mujoco.mjtCatBit.mjCAT_ALL.value
        mujoco.mjv_updateScene(model, data, self._option, None, self._view, everything, self._renderer.scene)
        for flag in OFF:
            self._renderer.scene.flags[flag] = 0
        # LaTeX: p_{ij} = \tfrac14 (q_{2i,2j} + q_{2i,2j+1} + q_{2i+1,2j} + q_{2i+1,2j+1})
        fine = self._renderer.render().reshape(self.size, 2, self.size, 2, 3).astype(np.uint16)
        mean: np.ndarray = (fine[:, 0, :, 0] + fine[:, 0, :, 1] + fine[:, 1, :, 0] + fine[:, 1, :, 1] + 2) >> 2
        return mean.astype(np.uint8)

    def close(self) -> None:
        """Release the renderer; the next picture makes another."""
        if self._renderer is not None:
            with _apart():
                self._renderer._gl_context.make_current()
                self._renderer.close()
            atexit.unregister(self._renderer.close)  # which would keep it, one for each episode of some tasks
        self._renderer = None

    def _make(self, model: mujoco.MjModel) -> mujoco.Renderer:
        number = self.camera if isinstance(self.camera, int) else model.camera(self.camera).id
        if number == -1 or model.ncam == 0:
            mujoco.mjv_defaultFreeCamera(model, self._view)
        else:
            self._view.type, self._view.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED, number
        quality, screen, size = model.vis.quality, model.vis.global_, 2 * self.size
        before = quality.offsamples, screen.offwidth, screen.offheight
        quality.offsamples = 0  # MuJoCo's own smooth edges take longer than four times the pixels
        screen.offwidth, screen.offheight = max(size, screen.offwidth), max(size, screen.offheight)
        renderer = mujoco.Renderer(model, size, size)
        quality.offsamples, screen.offwidth, screen.offheight = before
        atexit.register(renderer.close)  # before EGL is, which has registered itself by now
        return renderer


class Pixels(gymnasium.Wrapper):
    """Observes what a camera sees: [size, size, 3], uint8.

    Args:
        env: of MuJoCo: dm_control's, or gymnasium's.
        camera: may be shared with environments of the same id.

    Raises:
        ValueError: there is no MuJoCo in it, or no such camera.
    """

    def __init__(self, env: gymnasium.Env, camera: Camera) -> None:
        super().__init__(env)
        self.observation_space = spaces.Box(0, 255, (camera.size, camera.size, 3), np.uint8)
        model, _ = self._mujoco()
        camera.check(model)
        self._terrain = model.nhfield > 0  # it is another in each episode, and the renderer keeps it
        self.camera = Camera(camera.size, camera.camera) if self._terrain else camera

    def reset(self, **kwargs: Any) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode."""
        _, info = self.env.reset(**kwargs)
        if self._terrain:
            self.camera.close()
        return self.camera.see(*self._mujoco()), info

    def step(self, action: Any) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        """One step."""
        _, reward, terminated, truncated, info = self.env.step(action)
        return self.camera.see(*self._mujoco()), reward, terminated, truncated, info

    def close(self) -> None:
        """Release the renderer, and the simulator."""
        self.camera.close()
        self.env.close()

    def _mujoco(self) -> tuple[Any, Any]:
        env: Any = self.env.unwrapped
        physics = getattr(env, "physics", env)
        model, data = getattr(physics, "model", None), getattr(physics, "data", None)
        model, data = getattr(model, "ptr", model), getattr(data, "ptr", data)
        if not isinstance(model, mujoco.MjModel):
            raise ValueError("env.pixels=true: allowed is false, for it has no MuJoCo")
        return model, data
