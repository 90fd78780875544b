"""Imports point down only, and siblings do not know each other."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "minerva"

LAYERS = [
    {"errors", "types", "schema", "explain", "cli", "config", "auto", "fidelity", "seeding", "run", "signals", "trust"},
    {"returns", "distributions", "duals", "schedules", "compiled", "sweeps"},
    {"networks", "buffers", "envs", "loggers"},
    {"learner", "arrays"},
    {"algos", "collector", "evaluator", "checkpoint"},
    {"trainer", "policy", "runs", "video"},
    {"report", "site"},
]
# Within the lowest layer these may be imported by the others of it; the loggers are made by their configuration.
BASIC = {"cli", "errors", "types", "schema", "explain", "run", "auto", "fidelity", "signals", "trust"}
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
# Not imports of a module but of what a configuration names.
BUILDERS = {("config", "loggers"), ("config", "video")}


def part(path: Path) -> str:
    """``networks`` for minerva/networks/mlp.py."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """The modules of minerva that a file imports, without the package's name."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "minerva":
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("minerva."):
            names.add(node.module.removeprefix("minerva."))
        elif isinstance(node, ast.Import):
            names |= {a.name.removeprefix("minerva.") for a in node.names if a.name.startswith("minerva.")}
    return names


FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    own = part(path)
    for name in imports(path):
        other = name.split(".")[0]
        if other == own or other in BASIC or (own, other) in BUILDERS:
            continue
        assert LEVEL[other] < LEVEL[own], f"minerva/{path.relative_to(PACKAGE)} imports minerva.{name}"


def test_modules_of_one_layer_are_known() -> None:
    assert {part(path) for path in FILES} <= set(LEVEL)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_hydra_is_known_in_three_places_alone(path: Path) -> None:
    tree = ast.parse(path.read_text())
    roots = {
        (name or "").split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [node.module]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else []
        )
    }
    assert "hydra" not in roots or part(path) in ("cli", "config", "sweeps")
