"""The reference of all configuration keys, out of the YAML and the schemas."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from minerva.schema import SCHEMAS, Rule

CONF = Path(__file__).parents[2] / "conf"
LINE = re.compile(r"^(?P<indent> *)(?P<key>[\w.@/]+):(?: (?P<value>.*?))?(?: *# (?P<comment>.*))?$")
SCHEMA = re.compile(r"^ *- /?schema/([\w/]+)@", re.MULTILINE)  # that a file of keys begins with
KINDS = {
    "list[int]": "whole numbers", "list[float]": "numbers", "list[str]": "words", "float": "a number", "int": "a whole number",
    "bool": "true, false", "str": "a word", "dict[str, Any]": "keys and values", "Any": "",
}  # fmt: skip


class Key(NamedTuple):
    """A key of a file: its name there, its default, what may stand there, and what it means."""

    name: str
    default: str
    allowed: str
    meaning: str


def page() -> str:
    """Markdown of the reference."""
    parts = [
        "# Configuration",
        "Each key can be given on the command line: `python train.py algo.gamma=0.98 env.num_envs=8`. "
        "`python train.py --cfg job` shows them all, with their values.",
    ]
    for schema, file in files().items():
        group = file.rpartition("/")[0].partition("/")[0]
        rows = [
            f"| `{group + '.' if group else ''}{key.name}` | `{key.default}` | {key.allowed} | {key.meaning} |"
            for key in keys(CONF / file, SCHEMAS[schema])
        ]
        if rows:
            parts += [
                f"## conf/{file}",
                _about(CONF / file),
                "\n".join(["| key | default | allowed | meaning |", "|---|---|---|---|", *rows]),
            ]
    parts += ["## Environments", "A file each, `env=<name>`:", _choices("env")]
    parts += ["## Sweeps", "`sweep=<name>`:", _choices("sweep")]
    return "\n\n".join(part for part in parts if part) + "\n"


def files() -> dict[str, str]:
    """The file of keys that each schema is of; the first, where several share one. Those of the whole come first."""
    found: dict[str, str] = {}
    for path in sorted(CONF.rglob("*.yaml"), key=lambda path: (path.parent != CONF, path)):
        if schema := SCHEMA.search(path.read_text(encoding="utf-8")):
            found.setdefault(schema[1], path.relative_to(CONF).as_posix())
    return found


def keys(path: Path, schema: type) -> Iterator[Key]:
    """The keys of a file that have a value; ``schema`` is of those that are not of a group of their own."""
    entries = {entry.name: entry for one in (schema, SCHEMAS["reward"]) for entry in fields(one)}
    above: list[tuple[int, str]] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        match = LINE.match(line)
        if not match or match["key"] in ("defaults", "_target_"):
            continue
        indent = len(match["indent"])
        above = [(depth, name) for depth, name in above if depth < indent]
        name = ".".join([*(name for _, name in above), match["key"]])
        if not match["value"]:
            above.append((indent, match["key"]))
        elif match["key"] in entries:
            yield Key(name, match["value"], _allowed(entries[match["key"]]), _escaped(match["comment"] or ""))


def _allowed(entry: Any) -> str:
    rule: Rule | None = entry.metadata.get("rule")
    kind, _, null = str(entry.type).partition(" | ")
    for name, words in KINDS.items():
        kind = kind.replace(name, words)
    if rule and (rule.choices or rule.auto or rule.names):
        kind = ""
    what = " ".join(filter(None, [kind, str(rule or "")]))
    return _escaped(f"{what}, or null" if null else what)


def _about(path: Path) -> str:
    first = path.read_text(encoding="utf-8").splitlines()[0]
    return _escaped(first.removeprefix("# ")) if first.startswith("# ") else ""


def _choices(group: str) -> str:
    names = (path.relative_to(CONF / group).with_suffix("") for path in sorted((CONF / group).rglob("*.yaml")))
    return ", ".join(f"`{name}`" for name in names if name.name != "base")


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
