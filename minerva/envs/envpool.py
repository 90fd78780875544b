"""EnvPool's C++ environments as a :class:`minerva.types.VectorEnv`: the same tasks, several times as fast."""

from __future__ import annotations

import math
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import envpool
import numpy as np
import torch
from gymnasium import spaces

from minerva.errors import UserError
from minerva.seeding import derive
from minerva.types import UNBOUNDED, EnvSpec, Part, State, Step

# What EnvPool observes and dm_control does not, by task: it shows all of a domain that any of its tasks does.
EXTRA = {
    "dog-(stand|walk|trot|run)": {"ball_state", "target_position"},
    "finger-spin": {"target_position", "dist_to_target"},
    "fish-upright": {"target"},
    "humanoid-(stand|walk|run)": {"position"},
    "humanoid-run_pure_state": {"joint_angles", "head_height", "extremities", "torso_vertical", "com_velocity"},
    "quadruped-(walk|run)": {"origin", "rangefinder", "ball_state", "target_position"},
    "quadruped-escape": {"ball_state", "target_position"},
    "quadruped-fetch": {"origin", "rangefinder"},
}


class EnvPoolVectorEnv:
    """N environments stepped by threads of C++, reset within the step that ends an episode.

    EnvPool seeds an environment once, when it is made. So, where a step draws no chance, its state is its seed, the number of its
    episodes and the actions since the last of them began: :meth:`state_dict` keeps these, and :meth:`load_state_dict` makes all anew, resets each
    as often, and plays the actions again.

    Observations are those of :class:`minerva.envs.gymnasium.GymnasiumVectorEnv`, so that a checkpoint moves between the two.

    Args:
        id: as gymnasium has it; EnvPool's name for it is found.
        num_envs: N.
        max_episode_steps: where an episode is truncated; None for the environment's own limit.
        stagger: spread the first episodes' ends over this many steps; 0 leaves them whole.
        threads: of C++, at most N are used.

    Raises:
        UserError: EnvPool has no such environment.
    """

    def __init__(self, *, id: str, num_envs: int, max_episode_steps: int | None, stagger: int, threads: int) -> None:
        self.id, self.num_envs, self.stagger = id, num_envs, stagger
        self._task = task(id)
        self._config: dict[str, Any] = {"num_envs": num_envs, "num_threads": min(threads, num_envs)}
        if id.startswith("dm_control/"):
            self._config["base_path"] = _plain_models().name
        if self._task not in envpool.list_all_envs():
            raise UserError(f"env.backend=envpool: it has no {id}; allowed is gymnasium")
        spec = envpool.make_spec(self._task, **self._config)
        limit = spec.config.max_episode_steps
        if max_episode_steps is not None:
            limit = min(limit, max_episode_steps) if id.startswith("dm_control/") else max_episode_steps
        # Episodes are cut here, for EnvPool would call one that terminates in its last step cut.
        self._limit, self._config["max_episode_steps"] = limit, limit + 1
        arrays = spec.state_array_spec
        extra = set().union(*(names for tasks, names in EXTRA.items() if re.fullmatch(f"dm_control/{tasks}-v0", id)))
        # By name, as gymnasium's Dict spaces are.
        names = [key for key in sorted(arrays) if key.startswith("obs") and key.removeprefix("obs:") not in extra]
        self.names = [key.removeprefix("obs:") for key in names]
        keys = list(arrays)
        self._obs_at = [keys.index(key) for key in names]
        self._reward_at, self._done_at = keys.index("reward"), keys.index("done")
        shape = (sum(math.prod(arrays[key].shape) for key in names),)
        self._action_dtype = spec.action_array_spec["action"].dtype
        # A Dict of its names, but for those with one observation, "obs".
        parts = tuple(
            Part(name, tuple(arrays[key].shape) or (1,), False)
            for name, key in zip(self.names, names, strict=True)
            if key != "obs"
        )
        self.spec = EnvSpec(obs_shape=shape, obs_dtype="float32", action=_action(id, spec.action_space), parts=parts)

        self._pool: Any = None
        self._log: list[np.ndarray] = []  # actions, since the longest of the episodes began
        self._ids = np.arange(num_envs, dtype=np.int32)
        # Environment i's first episode ends after this many steps, at the latest.
        first = np.array([stagger * i // num_envs for i in range(num_envs)])
        self._first_limit = np.where(first > 0, np.minimum(first, limit), limit)
        self._obs = np.zeros((num_envs, *shape), np.float32)
        box = self.spec.action
        self._bounds = (box.low, box.high) if isinstance(box, spaces.Box) else None

    def reset(self, seed: int) -> np.ndarray:
        """Begin N first episodes. Returns obs [N, *obs_shape]."""
        self._make(seed)
        self._reset(self._ids, self._obs)
        return self._obs

    def step(self, action: np.ndarray) -> Step:
        """Step all; ``action`` [N, *action_shape] in the environment's units, clipped to its bounds."""
        if self._bounds is not None:
            if not np.isfinite(action).all():  # EnvPool begins such an episode anew, without a word
                raise UserError(f"env.id={self.id}: an action is not finite: {action[~np.isfinite(action)][0]}")
            action = np.minimum(np.maximum(action, self._bounds[0]), self._bounds[1])
        action = action.astype(self._action_dtype)  # a copy, which the log keeps
        self._log.append(action)
        state = self._send(self._ids, action)
        self._flatten(state, self._obs)
        terminated = state[self._done_at]
        self._length += 1
        truncated = (self._length == self._limits) & ~terminated
        ended, final_obs = terminated | truncated, self._obs
        if ended.any():
            final_obs = self._obs.copy()
            self._begin(np.flatnonzero(ended).astype(np.int32))
        return Step(self._obs, state[self._reward_at], terminated, truncated, final_obs)

    def close(self) -> None:
        """Release what the simulators hold."""
        self._pool = None

    def state_dict(self) -> State:
        """The seed, the number of episodes of each environment, and their actions since the last began."""
        self._forget()
        return {
            "seed": self._seed,
            "episode": torch.from_numpy(self._episode.copy()),
            "length": torch.from_numpy(self._length.copy()),
            "actions": torch.as_tensor(np.array(self._log)),
            "obs": torch.from_numpy(self._obs.copy()),
        }

    def load_state_dict(self, state: State, beat: Callable[[], None] = lambda: None) -> np.ndarray:
        """Go to where ``state`` was taken, by playing it again. Returns obs [N, *obs_shape].

        ``beat`` is called before every step.
        """
        episode, length = state["episode"].numpy(), state["length"].numpy()
        if len(episode) != self.num_envs:
            raise ValueError(f"a state of {len(episode)} environments, for {self.num_envs}")
        self._make(state["seed"])
        obs = np.empty_like(self._obs)
        for begun in range(episode.max()):
            beat()
            ids = np.flatnonzero(episode > begun).astype(np.int32)
            self._reset(ids, obs[: len(ids)])
            self._obs[ids] = obs[: len(ids)]
        self._log = [*state["actions"].numpy()]
        for t, action in enumerate(self._log):
            beat()
            # The log ends now for all; it begins with the longest episode.
            ids = np.flatnonzero(length >= len(self._log) - t).astype(np.int32)
            self._flatten(self._send(ids, action[ids]), obs[: len(ids)])
            self._obs[ids] = obs[: len(ids)]
        self._episode, self._length = episode.copy(), length.copy()
        if not np.array_equal(self._obs, state["obs"].numpy(), equal_nan=True):
            raise UserError(
                f"env.id={self.id}: cannot go on, for its steps draw chance; allowed is env.backend=gymnasium"
            )
        return self._obs

    def _make(self, seed: int) -> None:
        self._seed = seed
        # Below 2^31, and of their own each: EnvPool would give environment i the seed + i, which is a neighbour's.
        seeds = [derive(seed, i) >> 1 for i in range(self.num_envs)]
        self._pool = envpool.make_gymnasium(self._task, env_seed=seeds, **self._config)
        self._episode, self._length = np.zeros((2, self.num_envs), np.int64)
        self._log = []
        self._limits = self._first_limit.copy()

    def _begin(self, ids: np.ndarray) -> None:
        obs = np.empty_like(self._obs[ids])
        self._reset(ids, obs)
        self._obs[ids] = obs
        self._forget()

    def _reset(self, ids: np.ndarray, obs: np.ndarray) -> None:
        self._pool._reset(ids)
        self._flatten(self._pool._recv(), obs)
        self._limits[ids] = np.where(self._episode[ids] > 0, self._limit, self._first_limit[ids])
        self._episode[ids] += 1
        self._length[ids] = 0

    def _send(self, ids: np.ndarray, action: np.ndarray) -> list[np.ndarray]:
        # What EnvPool's step() does, without the tree of dicts, which takes as long as a step of a small environment.
        self._pool._send([ids, ids, action])
        state: list[np.ndarray] = self._pool._recv()
        return state

    def _flatten(self, state: list[np.ndarray], out: np.ndarray) -> None:
        parts = [state[at].reshape(len(out), -1) for at in self._obs_at]
        np.concatenate(parts, axis=1, out=out, casting="same_kind")

    def _forget(self) -> None:
        """Drop the actions of episodes that have ended."""
        del self._log[: len(self._log) - self._length.max()]


@cache
def _plain_models() -> tempfile.TemporaryDirectory[str]:
    """EnvPool's models of dm_control without the stars in their sky.

    An environment paints its own 4 million pixels of them when it is made, which takes longer than all else and 15 MB, and
    nobody looks at.
    """
    import envpool_assets

    folder, suite = tempfile.TemporaryDirectory(prefix="minerva-"), Path("mujoco") / "assets_dmc"
    shutil.copytree(Path(envpool_assets.__path__[0]) / suite, Path(folder.name) / suite, copy_function=os.symlink)
    sky = Path(folder.name) / suite / "common" / "skybox.xml"
    painted = sky.read_text()
    sky.unlink()  # the link, not what it points to
    sky.write_text(
        re.sub(r'(width|height)="\d+"|mark="\w+"', lambda found: f'{found[1]}="1"' if found[1] else "", painted)
    )
    return folder


def task(id: str) -> str:
    """EnvPool's name for a gymnasium id: ``dm_control/reacher-easy-v0`` is ``ReacherEasy-v1``."""
    found = re.fullmatch(r"dm_control/(.+)-v0", id)
    if found is None:
        return id
    return "".join(word[:1].upper() + word[1:] for word in re.split("[-_]", found[1])) + "-v1"


def _action(id: str, space: spaces.Space) -> spaces.Discrete | spaces.Box:
    """The space as the gymnasium backend has it: in its dtype, and with true infinities."""
    if isinstance(space, spaces.Discrete):
        return space
    assert isinstance(space, spaces.Box)
    dtype = np.dtype(np.float64 if id.startswith("dm_control/") else np.float32)
    low = np.where(space.low.astype(float) <= -UNBOUNDED, -np.inf, space.low).astype(dtype)
    high = np.where(space.high.astype(float) >= UNBOUNDED, np.inf, space.high).astype(dtype)
    return spaces.Box(low, high, dtype=dtype.type)
