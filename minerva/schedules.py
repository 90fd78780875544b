"""How a number changes in the course of a run."""

from __future__ import annotations

import math
from collections.abc import Callable


def _cosine(progress: float) -> float:
    # LaTeX: \tfrac12 (1 + \cos \pi p)
    return 0.5 * (1 + math.cos(math.pi * progress))


def _warmup_cosine(progress: float, warmup: float) -> float:
    # LaTeX: p / w \text{ where } p < w, \text{ then the cosine of } (p - w) / (1 - w)
    return progress / warmup if progress < warmup else _cosine((progress - warmup) / (1 - warmup))


# Of progress in [0, 1] and of the part of the run that is for warming up, in [0, 1).
SCHEDULES: dict[str, Callable[[float, float], float]] = {
    "constant": lambda progress, warmup: 1.0,
    "linear": lambda progress, warmup: 1 - progress,
    "cosine": lambda progress, warmup: _cosine(progress),
    "warmup_cosine": _warmup_cosine,
}


def factor(schedule: str, progress: float, warmup: float) -> float:
    """What a number is multiplied with, in [0, 1].

    Args:
        schedule: ``"constant"``; ``"linear"`` or ``"cosine"`` (Loshchilov and Hutter 2017, arXiv 1608.03983, eq. 5) to 0 at the end; or
            ``"warmup_cosine"``, the latter after a linear rise from 0.
        progress: of the run, in [0, 1].
        warmup: part of the run, in [0, 1), in which it rises.
    """
    return SCHEDULES[schedule](progress, warmup)
