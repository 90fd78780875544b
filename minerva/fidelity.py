"""Which of EnvPool's environments are those of dm_control and gymnasium, as scripts/compare_backends.py found them."""

from __future__ import annotations

import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

TABLE = Path(__file__).parent / "fidelity.json"
# What waking EnvPool's threads and being woken by them costs, with what they then still have to do.
WAKE_US = 250


@cache
def verdicts() -> dict[str, dict[str, Any]]:
    """``{"dm_control/cheetah-run-v0": {"verdict": "identical", "step_us": 30, ...}, ...}``; also ``alike`` and ``different``, with ``why``.

    ``step_us`` is how long a step on the gymnasium backend took when they were compared, in microseconds.
    """
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

    EnvPool's threads step in parallel, and faster, but are to be woken for it: a few quick environments are done by then.
    """
    if kwargs or num_envs == 1 or refusal(id) is not None or find_spec("envpool") is None:
        return "gymnasium"
    return "envpool" if num_envs * verdicts()[id]["step_us"] > WAKE_US else "gymnasium"
