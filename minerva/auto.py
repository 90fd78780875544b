"""What the word ``auto`` in a configuration stands for, here and for this run. The saved configuration has the answer."""

from __future__ import annotations

import itertools
import logging
import os
import shutil
from collections.abc import Callable
from typing import Any

from omegaconf import DictConfig, OmegaConf

from minerva.errors import UserError
from minerva.fidelity import fastest
from minerva.schema import AUTO

log = logging.getLogger(__name__)

KEYS = ("threads", "compile", "env.backend", "env.threads", "env.frame_stack")  # where auto may stand
# Compiling takes as long as this many plain steps on a minibatch.
WORTH = 10_000
# Products of a minibatch below which a second thread costs more than it saves.
WORK = 4_000_000


def settle(config: DictConfig, before: DictConfig | None = None) -> None:
    """Replace every ``auto`` of ``config``; by what it was ``before``, where a run goes on.

    Raises:
        UserError: what is asked for cannot be had here.
    """
    for key in KEYS:
        if before is not None and OmegaConf.select(config, key) == AUTO:
            OmegaConf.update(config, key, OmegaConf.select(before, key, default=AUTO))
    env, backbone = config.env, config.network.get("backbone")
    _answer(config, "threads", lambda: min(cores(), 2) if _work(config) > WORK else 1)
    _answer(config, "compile", lambda: _worth_compiling(config))
    plain = not env.pixels and env.action_repeat == 1  # what EnvPool can do
    _answer(env, "backend", lambda: fastest(env.id, env.kwargs, env.num_envs) if plain else "gymnasium")
    _answer(env, "threads", lambda: min(cores(), 8))
    _answer(env, "frame_stack", lambda: (backbone or {}).get("seq_len") or (3 if env.pixels else 1))
    if config.compile and config.device == "cpu" and not _compiler():
        raise UserError("compile=true: there is no C++ compiler (g++) here; allowed is false, or auto")


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _answer(node: DictConfig, name: str, answer: Callable[[], Any]) -> None:
    if node.get(name) == AUTO:
        node[name] = answer()


def _compiler() -> str | None:
    return shutil.which(os.environ.get("CXX", "g++"))


def _rollout(config: DictConfig) -> int:
    return int(config.algo.num_steps * config.env.num_envs)


def _work(config: DictConfig) -> int:
    """Products of weights and samples in the hidden layers, for a minibatch."""
    if config.network.get("backbone"):
        return 2 * WORK  # of convolutions, or of attention
    layers = [config.network.policy_layers, config.network.value_layers]
    weights = sum(a * b for widths in layers for a, b in itertools.pairwise(widths))
    return int(weights * (config.algo.get("minibatch_size") or _rollout(config)))


def _worth_compiling(config: DictConfig) -> bool:
    if config.device != "cpu" or config.network.get("backbone"):
        return False
    algo, rollout = config.algo, _rollout(config)
    passes = algo.get("update_epochs") or algo.get("m_steps") or 1
    steps = config.trainer.total_steps // rollout * passes * (rollout / (algo.get("minibatch_size") or rollout))
    if steps < WORTH:
        return False
    if not _compiler():
        log.warning("not compiled, for there is no C++ compiler (g++) here: training is slower")
        return False
    return True
