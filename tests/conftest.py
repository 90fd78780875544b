"""What the tests share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from minerva.networks.actor_critic import ActorCritic
from minerva.types import EnvSpec

NETWORK = {
    "backbone": None, "policy_layers": [8], "value_layers": [8], "shared_encoder": False, "activation": "tanh", "init": "orthogonal",
    "layer_norm": False, "head": "gaussian", "initial_std": 1.0, "state_dependent_std": False, "std": "exp", "std_bounds": None,
    "normalize_observations": True, "symlog_observations": False, "observation_clip": 10.0, "popart_rate": 0.1,
}  # fmt: skip

ROOT = Path(__file__).parent.parent

torch.set_num_threads(1)
os.environ.setdefault("MUJOCO_GL", "egl")  # as minerva does, but before a test imports dm_control


def actor_critic(spec: EnvSpec, **changes: Any) -> ActorCritic:
    """A small network, always the same."""
    torch.manual_seed(0)
    return ActorCritic(spec=spec, **(NETWORK | changes))


@pytest.fixture(autouse=True, scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What is compiled here is kept for the tests alone."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a script of the repository, as a user would: ``python("train.py", "seed=1")``."""

    def run(*args: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *map(str, args)]
        return subprocess.run(
            command, cwd=ROOT, env=os.environ | env, capture_output=True, text=True, timeout=120, check=False
        )

    return run
