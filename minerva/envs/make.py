"""Environments by their gymnasium id, on the backend that is asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType
from typing import Any

from minerva.envs.guarded import Guard, GuardedVectorEnv
from minerva.envs.stacked import StackedVectorEnv
from minerva.errors import UserError
from minerva.fidelity import refusal
from minerva.types import VectorEnv


def make(
    *,
    id: str,
    backend: str,
    allow_different: bool,
    threads: int,
    timeout: float | None,
    kwargs: Mapping[str, Any],
    num_envs: int,
    max_episode_steps: int | None,
    pixels: bool,
    pixel_size: int,
    camera: int | str,
    action_repeat: int,
    frame_stack: int,
    stagger: int,
    on_hang: Callable[[str], None] | None,
) -> VectorEnv:
    """N environments stepped together.

    Args:
        id: a registered id; ``module:id`` imports the module that registers it first.
        backend: ``"gymnasium"``, or ``"envpool"``.
        allow_different: let EnvPool run what is not proven to be the same task.
        threads: of EnvPool.
        timeout: seconds that a step of all, a reset, or making them may take; None for any time.
        kwargs: further arguments for ``gymnasium.make``.
        num_envs: N.
        max_episode_steps: where an episode is truncated; None for the environment's own limit.
        pixels: observe pictures, of MuJoCo tasks.
        pixel_size: their height and width.
        camera: what takes them; a number, or a name.
        action_repeat: each action is done so many times, and that is one step.
        frame_stack: so many of the last observations are one; with 1 each is by itself.
        stagger: spread the first episodes' ends over this many steps; 0 leaves them whole.
        on_hang: given the message, where ``timeout`` has passed and the process ends; None for nothing more.

    Raises:
        UserError: an environment that cannot be made, or that the backend does not have or has differently; later, of its methods, that
            it failed.
    """
    arguments: dict[str, Any] = {
        "id": id,
        "num_envs": num_envs,
        "max_episode_steps": max_episode_steps,
        "stagger": stagger // action_repeat,
    }
    if backend == "envpool" and (pixels or action_repeat > 1):
        raise UserError(
            "env.backend=envpool: allowed is gymnasium, or auto, with env.pixels=true or env.action_repeat above 1"
        )
    if backend == "envpool":
        maker = _envpool(id, kwargs, allow_different, threads)
    else:
        view = (pixel_size, camera) if pixels else None
        maker = _gymnasium(kwargs, view, action_repeat)
    env = GuardedVectorEnv(lambda: maker(**arguments), Guard(f"env.id={id}:", timeout, on_hang))
    return env if frame_stack == 1 else StackedVectorEnv(env, frame_stack)


def _gymnasium(
    kwargs: Mapping[str, Any], view: tuple[int, int | str] | None, action_repeat: int
) -> Callable[..., VectorEnv]:
    from minerva.envs.gymnasium import GymnasiumVectorEnv

    camera = None
    if view:
        from minerva.envs.pixels import Camera

        camera = Camera(*view)
    return partial(GymnasiumVectorEnv, kwargs=kwargs, camera=camera, action_repeat=action_repeat)


def _envpool(id: str, kwargs: Mapping[str, Any], allow_different: bool, threads: int) -> Callable[..., VectorEnv]:
    if kwargs:
        raise UserError(f"env.kwargs={dict(kwargs)}: allowed is {{}} with env.backend=envpool")
    if (reason := refusal(id)) and not allow_different:
        raise UserError(f"env.backend=envpool: {reason}; allowed is gymnasium, or env.allow_different=true")
    for suite in ("jumanji", "mujoco.myosuite", "mujoco.playground"):  # of no use here, and a second to import
        for name in (f"envpool.{suite}", f"envpool.{suite}.registration"):
            sys.modules.setdefault(name, ModuleType(name))
    try:
        from minerva.envs.envpool import EnvPoolVectorEnv
    except ImportError as error:
        raise UserError(f"env.backend=envpool: {error}; pip install 'minerva[envpool]', or gymnasium") from error
    return partial(EnvPoolVectorEnv, threads=threads)
