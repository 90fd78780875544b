"""How pictures look. Colours are Okabe and Ito's, which the colour-blind can tell apart; grey for their yellow, which white swallows."""

from __future__ import annotations

from typing import Any

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#888888")
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "svg.hashsalt": "minerva",  # the same file each time
    "savefig.dpi": 150,
}


def unit(most: float, by_time: bool = False) -> tuple[float, str]:
    """What environment steps, or seconds, up to ``most`` are best counted in, and what their axis says."""
    if by_time:
        size, name = next(
            (u, n) for u, n in ((3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds")) if most >= 2 * u or u == 1
        )
        return size, f"time of the run ({name})"
    size, name = next(
        (u, n) for u, n in ((1e6, " (millions)"), (1e3, " (thousands)"), (1.0, "")) if most >= u / 2 or u == 1
    )
    return size, f"environment steps{name}"
