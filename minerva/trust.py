"""What a configuration may make this program do. One that is a year old, or a stranger's, is data: it chooses among what is here.

The command line, and the environment variable ``MINERVA_ALLOW_TARGETS=mypackage,another``, are the user's own word.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from minerva.errors import UserError

ALLOW = "MINERVA_ALLOW_TARGETS"


def allowed(name: str, more: tuple[str, ...] = ()) -> bool:
    """Whether ``name``, of a module or of what is in one, is of a package that the user allows, or of ``more``."""
    packages = [*more, *filter(None, os.environ.get(ALLOW, "").split(","))]
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def target(name: str) -> Any:
    """The class that ``_target_: name`` means.

    Raises:
        UserError: it is neither minerva's nor of a package that the user allows; by its own name, whatever it is called here.
    """
    found: Any = None
    if allowed(name, ("minerva",)):
        found, parts = None, name.split(".")
        for place in range(len(parts) - 1, 0, -1):  # the longest module there is, and what is in it
            try:
                found = import_module(".".join(parts[:place]))
            except ModuleNotFoundError:
                continue
            for part in parts[place:]:
                found = getattr(found, part, None)
            break
    if not callable(found) or not allowed(str(getattr(found, "__module__", "")), ("minerva",)):
        raise UserError(f"_target_={name}: allowed are classes of minerva, and of the packages that {ALLOW} names")
    return found


def check_import(key: str, id: str) -> None:
    """Refuse a ``module:Id``, of an environment or within its arguments, which imports the module, unless the user said so.

    Raises:
        UserError: naming both ways to say it.
    """
    module, colon, _ = id.rpartition(":")
    typed = any(id in argument for argument in sys.argv[1:])
    if colon and not typed and not allowed(module, ("minerva",)):
        raise UserError(
            f"{key}={id}: imports code; give it on the command line, or allow it with {ALLOW}={module.partition('.')[0]}"
        )


def read(path: Path) -> DictConfig:
    """The configuration that was saved in ``path``, as data.

    Raises:
        FileNotFoundError: there is none.
        UserError: it cannot be read.
    """
    try:
        config = OmegaConf.load(path)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, RecursionError, YAMLError, OmegaConfBaseException) as error:
        raise UserError(f"{path}: cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(config, DictConfig) or not config:
        raise UserError(f"{path}: not a configuration of minerva")
    return config


def check_saved(arguments: list[str], script: Path) -> None:
    """Refuse a file given as ``-cp DIR -cn NAME`` that is more than a saved configuration: Hydra would do what it says.

    Raises:
        UserError: it cannot be read, has settings of Hydra's, or brings in other files.
    """
    folder, name = (_option(arguments, *names) for names in (("-cp", "--config-path"), ("-cn", "--config-name")))
    if folder is None:
        return
    path = script.parent / folder / f"{(name or 'train').removesuffix('.yaml')}.yaml"
    if not path.is_file():
        return  # Hydra says so
    config = read(path)
    found = [key for key in ("hydra", "defaults") if key in config]
    if found or "@package" in path.read_text(encoding="utf-8"):
        raise UserError(
            f"{path}: has {found[0] if found else '@package'}: allowed is a saved configuration; give Hydra's settings on the command "
            "line, and groups of your own with --config-dir"
        )


def _option(arguments: list[str], *names: str) -> str | None:
    """The value of the last of ``names`` in ``arguments``, as ``-cp X``, ``-cp=X`` or ``-cpX``."""
    value = None
    for argument, following in pairwise([*arguments, ""]):
        for name in names:
            if argument == name:
                value = following
            elif argument.startswith(f"{name}=") or (argument.startswith(name) and not name.startswith("--")):
                value = argument.removeprefix(name).removeprefix("=")
    return value
