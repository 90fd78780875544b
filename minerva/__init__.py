"""minerva: reinforcement-learning experiments that run fast, finish, and can be trusted."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy's matrices are small here; read when it is imported

if TYPE_CHECKING:
    from minerva.policy import load_policy
    from minerva.runs import load_runs

__all__ = ["load_policy", "load_runs"]


def __getattr__(name: str) -> Any:
    # Imported when first used: torch takes a second, which --help and tab completion have no use for.
    if name == "load_policy":
        from minerva.policy import load_policy

        return load_policy
    if name == "load_runs":
        from minerva.runs import load_runs

        return load_runs
    raise AttributeError(f"module 'minerva' has no attribute {name!r}")
