"""The words of a command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def quoted(path: Path) -> str:
    """As Hydra's grammar takes a path with any characters in it."""
    return "'" + str(path).replace("'", "\\'") + "'"


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Hydra's options that say where it finds configurations, and the overrides: the latter must stand together."""
    options, overrides, take = [], list[str](), False
    for argument in arguments:
        if take or argument.startswith("-c") or argument.startswith("--c"):
            options.append(argument)
            take = not take and "=" not in argument
        elif not argument.startswith("-"):
            overrides.append(argument)
    return options, overrides
