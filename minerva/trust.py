"""What a configuration may make this program do. One that is a year old, or a stranger's, is data: it chooses among what is here.

The command line, and the environment variable ``MINERVA_ALLOW_TARGETS=mypackage,another``, are the user's own word.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from minerva.errors import UserError

ALLOW = "MINERVA_ALLOW_TARGETS"
ENV = re.compile(r"\+*env(\.[\w.]+)?")
BACKBONE = "network.backbone._target_"  # which a user may type
CALL = re.compile(r"\$\{[^}]*:")  # of a resolver, which could read the environment

# What a command may say that was kept in a file, without anything being executed but this program's own.
HARMLESS = re.compile(
    r"(?!hydra\b)[\w./@-]+|hydra/(launcher|sweeper)|hydra\.mode|hydra\.sweep\.dir|hydra\.sweeper\.(n_trials|batch|seed|max_batch_size)"
    r"|hydra\.launcher\.(?!setup|teardown|srun_args|additional_parameters)[a-z]\w*"
)

_isolated: tempfile.TemporaryDirectory[str] | None = None


def typed() -> list[str]:
    """The arguments of the command line, as the user gave them."""
    return sys.argv[1:] if _isolated is None else sys.argv[1:-4]


def allowed(name: str, more: tuple[str, ...] = ()) -> bool:
    """Whether ``name``, of a module or of what is in one, is of a package that the user allows, or of ``more``."""
    given = [argument.partition("=") for argument in typed()]
    said = [
        backbone.partition(".")[0]
        for key, _, names in given
        if key == BACKBONE
        for backbone in names.split(",")
        if backbone
    ]
    packages = [*more, *said, *filter(None, os.environ.get(ALLOW, "").split(","))]
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
    arguments = [argument.replace("\\", "").partition("=") for argument in typed()]  # Hydra's sweepers escape a colon
    said = any(id in value for name, _, value in arguments if ENV.fullmatch(name))
    if colon and not said and not allowed(module, ("minerva",)):
        raise UserError(
            f"{key}={id}: imports code; give it on the command line, or allow it with {ALLOW}={module.partition('.')[0]}"
        )


def check_kept(options: Sequence[str], overrides: Sequence[str], where: Path) -> None:
    """Refuse words of a command, kept ``where`` a stranger may have written them, that could have other code executed.

    Raises:
        UserError: naming the first, and how to allow it.
    """
    names = {option.partition("=")[0] for option in options if option.startswith("-")}
    unknown = names - {"-cp", "--config-path", "-cn", "--config-name"}
    for word in [*unknown, *overrides]:
        key, _, value = word.lstrip("+~").partition("=")
        imports = word in unknown or "_target_" in word or (key.startswith("env") and ":" in value)
        if imports or not HARMLESS.fullmatch(key) or CALL.search(value) or ".." in word or "\n" in word:
            raise UserError(
                f"{where}: has {word!r}, which can execute code; repeat the command that began the sweep, or give this word here again, if "
                "it is yours"
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
    for value in leaves(OmegaConf.to_container(config)):
        if CALL.search(str(value)):
            raise UserError(f"{path}: has {value}: allowed are values, and ${{key}}")
    return config


def leaves(node: Any) -> Iterator[Any]:
    """What is in ``node``, within dicts and lists of any depth."""
    if isinstance(node, dict | list):
        for child in node.values() if isinstance(node, dict) else node:
            yield from leaves(child)
    else:
        yield node


def isolate(folder: str | None, name: str | None, script: Path) -> None:
    """Have Hydra see of what ``-cp FOLDER -cn NAME`` names that one file, read as data, and nothing that lies beside it.

    Raises:
        UserError: there is no such file; it cannot be read, has settings of Hydra's, or brings in other files.
    """
    global _isolated
    if folder is None and (name is None or Path(name).name == name):
        return  # one of conf/'s own
    path = script.parent / (folder or "conf") / f"{(name or 'train').removesuffix('.yaml')}.yaml"
    if not path.is_file():
        raise UserError(
            f"{path}: there is no such file, which -cp and -cn name; allowed is -cp $PWD/RUN/.hydra -cn config"
        )
    config = read(path)
    found = [key for key in ("hydra", "defaults") if key in config]
    if found or "@package" in path.read_text(encoding="utf-8"):
        raise UserError(
            f"{path}: has {found[0] if found else '@package'}: allowed is a saved configuration; give Hydra's settings on the command "
            "line, and groups of your own with --config-dir"
        )
    _isolated = tempfile.TemporaryDirectory(prefix="minerva-")
    OmegaConf.save(config, Path(_isolated.name) / "config.yaml")
    sys.argv += ["-cp", _isolated.name, "-cn", "config"]  # the last ones count
