"""From an exception of Hydra or OmegaConf to one line that names the key, the value and what is allowed."""

from __future__ import annotations

import difflib
import re
import sys
from dataclasses import fields
from pathlib import Path

from omegaconf.errors import OmegaConfBaseException

from minerva.errors import UserError
from minerva.schema import SCHEMAS

CONF = Path(__file__).parent.parent / "conf"


def explain(error: BaseException, within: str = "") -> str:
    """One line for ``error``, with the nearest names where one was misspelt; its key is one of ``within``."""
    text = " ".join(str(error).split())
    if isinstance(error, UserError):
        return text
    if hasattr(error, "override"):  # one that Hydra could not read
        return f"{error.override}: {_unreadable(text)}"
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    if text.startswith("Config group override must be"):
        groups = "|".join(path.name for path in CONF.iterdir() if path.is_dir())
        bad = [word for word in sys.argv if re.match(rf"\+*({groups})=(null|true|false|[-+.\d])", word, re.I)]
        return f"{' '.join(bad)}: allowed is the name of a file in conf/, or several as [a,b]"
    if found := re.search(r"Error resolving interpolation '(.+)', possible interpolation keys: (.*)", text):
        chosen = found[2].split(", ")  # the groups of which one file was; by two of them tuned values are found
        group = next(name for name in re.findall(r"\$\{(\w+)\}", found[1]) if name not in chosen)
        return f"{group}: must be given, as one name: {group}=..."
    if found := re.search(r"Could not (?:find|load) '([^']+)'", text):
        return _unknown_choice(found[1])
    if found := re.search(r"Could not override '([^']+)'", text):
        inner = getattr(error.__cause__, "full_key", None)
        return _unknown_key(inner or found[1])
    if found := re.search(r"Key '(\w+)' not in '\w+'", text):
        return _unknown_key(f"{within}{found[1]}")
    if isinstance(error.__cause__, OmegaConfBaseException):
        error = error.__cause__
    if isinstance(error, OmegaConfBaseException):
        given = re.search(r"override '?\+*([\w.]+)=", text)
        key = given[1] if given else f"{within}{error.full_key or ''}"
        return f"{key}: {str(error.msg or error).splitlines()[0]}"
    return text.partition(" See https://hydra.cc")[0]


def _unreadable(text: str) -> str:
    """What Hydra says of an argument that it cannot read, without what is of use to the author of a parser alone."""
    if "LexerNoViableAltException" in text:
        return "a quote is not closed, or a character must be quoted, as KEY='VALUE' within quotes of the shell"
    said = text.partition(" See https://hydra.cc")[0].partition(" expecting ")[0]
    return "cannot be read as KEY=VALUE: " + re.sub(r"^Error parsing override '.*' (?=\w)", "", said)


def _unknown_choice(path: str) -> str:
    """For ``env/dm_control/cheeta/run``: the nearest files of that group."""
    group, _, name = path.partition("/")
    known = [p.relative_to(CONF / group).with_suffix("").as_posix() for p in (CONF / group).rglob("*.yaml")]
    known = sorted(choice for choice in known if not choice.endswith("base"))
    if not known:
        return f"{path}: there is no such configuration file or group"
    near = difflib.get_close_matches(name, known, n=3) or [f"{len(known)} files in conf/{group}/"]
    return f"{group}={name}: there is no such choice; nearest: {', '.join(near if len(known) > 12 else known)}"


def _unknown_key(key: str) -> str:
    """For ``algo.gama``: the nearest keys of any schema."""
    known = {
        ".".join([*path.split("/")[:-1], entry.name]): str(entry.type)
        for path, schema in SCHEMAS.items()
        for entry in fields(schema)
        if entry.name != "_target_"
    }
    known_others = [name for name in known if name != key]  # it may be a key, of another class
    near = difflib.get_close_matches(key, known_others, n=3)
    if known.get(key.rpartition(".")[0], "").startswith("dict"):
        return f"{key}: is not there yet; add it as +{key}=..."
    hint = f"nearest: {', '.join(near)}" if near else "see python train.py --cfg job"
    return f"{key}: there is no such key; {hint}"
