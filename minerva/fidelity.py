"""Which of EnvPool's environments are those of dm_control and gymnasium, as scripts/compare_backends.py found them."""

from __future__ import annotations

import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

TABLE = Path(__file__).parent / "fidelity.json"


@cache
def verdicts() -> dict[str, dict[str, Any]]:
    """``{"dm_control/cheetah-run-v0": {"verdict": "identical", ...}, ...}``; also ``alike`` and ``different``, with ``why``."""
    table: dict[str, dict[str, Any]] = json.loads(TABLE.read_text())
    return table


def refusal(id: str) -> str | None:
    """Why EnvPool's ``id`` is not to be used unless asked for; None where it is proven identical."""
    found = verdicts().get(id)
    if found is None:
        return f"its {id} was not compared with the original"
    return None if found["verdict"] == "identical" else f"its {id} is {found['verdict']}: {found['why']}"


def fastest(id: str, kwargs: dict[str, Any], num_envs: int) -> str:
    """The fastest backend that is installed here and proven identical for the task.

    EnvPool hands each step to a thread and waits for it: one environment alone is stepped faster without.
    """
    usable = num_envs > 1 and not kwargs and refusal(id) is None and find_spec("envpool") is not None
    return "envpool" if usable else "gymnasium"
