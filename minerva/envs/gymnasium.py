"""Any gymnasium environment, and dm_control through shimmy, as a :class:`minerva.types.VectorEnv`."""

from __future__ import annotations

import contextlib
import ctypes.util
import difflib
import logging
import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if sys.platform == "linux" and ctypes.util.find_library("EGL"):
    os.environ.setdefault("MUJOCO_GL", "egl")  # renders without a display; read when dm_control is imported

import gymnasium
import torch
from gymnasium import spaces

from minerva.errors import UserError
from minerva.seeding import derive
from minerva.types import UNBOUNDED, EnvSpec, Part, State, Step

if TYPE_CHECKING:
    from minerva.envs.pixels import Camera


class GymnasiumVectorEnv:
    """N gymnasium environments stepped one after the other, reset within the step that ends an episode.

    Every episode is begun with a seed made of the run's seed, the environment's index and the episode's number. So an
    environment's whole state is that number and the actions since: :meth:`state_dict` keeps these, and
    :meth:`load_state_dict` plays them again. It takes at most one episode of each environment, and asks of the
    environment only that it be deterministic.

    Observations: a Box as it is, as float32 (uint8 stays, for images); a Dict of Boxes flattened and concatenated in
    the order of its space, which is by name, but images last; other spaces as :func:`gymnasium.spaces.flatten` has them (a Discrete
    one-hot).

    Args:
        id: a registered id; ``module:id`` imports the module that registers it first.
        kwargs: further arguments for ``gymnasium.make``.
        camera: observe its pictures instead, of MuJoCo tasks; None for what the environment gives.
        action_repeat: so many steps of the environment are one.
        num_envs: N.
        max_episode_steps: where an episode is truncated; None for the environment's own limit.
        stagger: spread the first episodes' ends over this many steps, so that environments with a fixed episode
            length are not all reset in the same step. 0 leaves them whole.

    Raises:
        UserError: an unknown id, an environment that cannot be made, or a space that is not supported.
    """

    def __init__(
        self,
        *,
        id: str,
        kwargs: Mapping[str, Any],
        num_envs: int,
        max_episode_steps: int | None,
        stagger: int,
        camera: Camera | None = None,
        action_repeat: int = 1,
    ) -> None:
        self.id, self.num_envs, self.stagger, self._repeat = id, num_envs, stagger, action_repeat
        self.envs = [_make(id, kwargs, max_episode_steps, camera, action_repeat) for _ in range(num_envs)]
        env = self.envs[0]
        shape, dtype, parts, self._flatten = _observation(id, env.observation_space)
        if camera is None:  # of dm_control's, which have put theirs together themselves
            parts = parts or getattr(env.unwrapped, "parts", ())
        action = _action(id, env.action_space)
        self.spec = EnvSpec(obs_shape=shape, obs_dtype=dtype, action=action, parts=parts)
        self._bounds = (action.low, action.high) if isinstance(action, spaces.Box) else None
        self._start = None if isinstance(action, spaces.Box) else action.start
        # Environment i's first episode ends after this many steps, at the latest; 0 is for never.
        self._first_length = [stagger * i // num_envs for i in range(num_envs)]

        self._obs = np.zeros((num_envs, *shape), dtype)
        self._reward = np.zeros(num_envs, np.float32)
        self._terminated = np.zeros(num_envs, bool)
        self._truncated = np.zeros(num_envs, bool)
        self._seed = 0
        self._episode = [0] * num_envs
        self._actions: list[list[np.ndarray]] = [[] for _ in range(num_envs)]  # since each episode began

    def reset(self, seed: int) -> np.ndarray:
        """Begin N first episodes. Returns obs [N, *obs_shape]."""
        self._seed = seed
        for i in range(self.num_envs):
            self._begin(i, episode=0)
        return self._obs

    def step(self, action: np.ndarray) -> Step:
        """Step all; ``action`` [N, *action_shape] in the environment's units, clipped to its bounds."""
        action, final_obs, ended = self._clip(action), self._obs, []
        for i in range(self.num_envs):
            if self._step(i, action[i]):
                ended.append(i)
        if ended:
            final_obs = self._obs.copy()
            for i in ended:
                self._begin(i, self._episode[i] + 1)
        return Step(self._obs, self._reward, self._terminated, self._truncated, final_obs)

    def render(self) -> Any:
        """A picture [height, width, 3] of the first environment, uint8; None if it gives none."""
        with contextlib.suppress(NotImplementedError):
            return self.envs[0].render()
        return None

    @property
    def frames_a_second(self) -> float:
        """How many steps are a second of the first environment's time."""
        return float(self.envs[0].metadata.get("render_fps") or 30) / self._repeat

    def close(self) -> None:
        """Release what the simulators hold."""
        for env in self.envs:
            env.close()

    def state_dict(self) -> State:
        """The seed, each environment's episode number, and its actions since that episode began."""
        return {
            "seed": self._seed,
            "episode": list(self._episode),
            "actions": [torch.as_tensor(np.array(actions)) for actions in self._actions],
        }

    def load_state_dict(self, state: State, beat: Callable[[], None] = lambda: None) -> np.ndarray:
        """Go to where ``state`` was taken, by playing the actions again. Returns obs [N, *obs_shape].

        ``beat`` is called before every step.
        """
        if len(state["episode"]) != self.num_envs:
            raise ValueError(f"a state of {len(state['episode'])} environments, for {self.num_envs}")
        self._seed = state["seed"]
        for i in range(self.num_envs):
            beat()
            self._begin(i, state["episode"][i])
            for action in state["actions"][i].numpy():
                beat()
                self._step(i, action)
        return self._obs

    def _begin(self, i: int, episode: int) -> None:
        self._episode[i] = episode
        self._actions[i] = []
        obs, _ = self.envs[i].reset(seed=derive(self._seed, i, episode))
        self._obs[i] = self._flatten(obs)

    def _step(self, i: int, action: np.ndarray) -> bool:
        """Step environment ``i``; returns whether its episode ended."""
        self._actions[i].append(action)
        try:
            obs, self._reward[i], terminated, truncated, _ = self.envs[i].step(action)
        except (Exception, SystemExit) as error:  # an unstable simulation, or a mistake in somebody's environment
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise UserError(
                f"env.id={self.id}: environment {i} failed in step {len(self._actions[i])}: {reason}"
            ) from error
        self._obs[i] = self._flatten(obs)
        cut = self._episode[i] == 0 and len(self._actions[i]) == self._first_length[i]
        self._terminated[i], self._truncated[i] = terminated, (truncated or cut) and not terminated
        return bool(terminated or truncated or cut)

    def _clip(self, action: np.ndarray) -> np.ndarray:
        # A copy of its own each step: the episode's log keeps the rows.
        if self._bounds is not None:
            clipped = np.minimum(np.maximum(action, self._bounds[0]), self._bounds[1])
            return clipped.astype(self._bounds[0].dtype, copy=False)
        return action + self._start


def _make(
    id: str,
    kwargs: Mapping[str, Any],
    max_episode_steps: int | None,
    camera: Camera | None,
    action_repeat: int,
) -> gymnasium.Env:
    if id.startswith("dm_control/"):
        import absl.logging

        logging.getLogger("OpenGL").setLevel("ERROR")  # remarks on what it was built without, when it is imported
        from minerva.envs.dm_control import DMControlEnv

        absl.logging.set_verbosity("error")  # else remarks on dm_control's own models, for each environment
        import shimmy  # noqa: F401  # registers the dm_control ids
    suite, kwargs = id.startswith("dm_control/"), {str(k): v for k, v in kwargs.items()}
    try:
        env = gymnasium.make(
            id, max_episode_steps=None if suite else max_episode_steps, disable_env_checker=True, **kwargs
        )
        env = DMControlEnv(env.unwrapped, max_episode_steps) if suite else env
        if camera is None and action_repeat == 1:
            return env
        from minerva.envs.pixels import Pixels, Repeat  # here, for MuJoCo takes a third of a second

        env = Repeat(env, action_repeat) if action_repeat > 1 else env
        return Pixels(env, camera) if camera else env
    except Exception as error:  # whatever a constructor may raise
        near = difflib.get_close_matches(id, list(gymnasium.registry), n=3)
        hint = f"; nearest: {', '.join(near)}" if near and id not in gymnasium.registry else ""
        reason = " ".join(str(error).split())
        raise UserError(f"env.id={id}: cannot be made: {reason}{hint}") from error


def _observation(id: str, space: spaces.Space) -> tuple[tuple[int, ...], str, tuple[Part, ...], Callable[[Any], Any]]:
    """Shape, dtype, parts and flattening of the observations of ``space``."""
    if isinstance(space, spaces.Box):
        return space.shape or (1,), "uint8" if space.dtype == np.uint8 else "float32", (), lambda obs: obs
    try:
        shape = (spaces.flatdim(space),)
    except (NotImplementedError, ValueError):
        raise UserError(
            f"env.id={id}: observation space {type(space).__name__} is not supported; "
            "allowed: Box, Discrete, MultiDiscrete, MultiBinary, and Dict or Tuple of these"
        ) from None
    if isinstance(space, spaces.Dict) and all(isinstance(box, spaces.Box) for box in space.values()):
        shapes: dict[str, Any] = {name: box.shape or (1,) for name, box in space.items()}
        parts = [Part(name, shapes[name], _is_image(box)) for name, box in space.items()]
        parts.sort(key=lambda part: part.image)
        names = [part.name for part in parts]
        return shape, "float32", tuple(parts), lambda obs: np.concatenate([np.ravel(obs[name]) for name in names])
    return shape, "float32", (), lambda obs: spaces.flatten(space, obs)


def _is_image(box: Any) -> bool:
    """Whether it has bytes up to 255 in rows and columns; a board of a few pieces is none."""
    return bool(box.dtype == np.uint8 and len(box.shape) in (2, 3) and box.high.max() == 255)


def _action(id: str, space: spaces.Space) -> spaces.Discrete | spaces.MultiDiscrete | spaces.Box:
    """The space, with true infinities."""
    if isinstance(space, spaces.Discrete):
        return space
    if isinstance(space, spaces.MultiDiscrete) and len(space.shape) == 1:
        return space
    if isinstance(space, spaces.Box) and len(space.shape) == 1 and np.issubdtype(space.dtype, np.floating):
        low = np.where(space.low <= -UNBOUNDED, -np.inf, space.low).astype(space.dtype)
        high = np.where(space.high >= UNBOUNDED, np.inf, space.high).astype(space.dtype)
        return spaces.Box(low, high, dtype=space.dtype.type)
    raise UserError(
        f"env.id={id}: action space {' '.join(str(space).split())} is not supported; allowed: Discrete, and MultiDiscrete and Box of one dimension"
    )
