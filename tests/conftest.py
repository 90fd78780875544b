"""What the tests share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent

torch.set_num_threads(1)


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
