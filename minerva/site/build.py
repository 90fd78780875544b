"""The documentation's pages, those that are written and those that are made of the source, put together for MkDocs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import griffe
import yaml

from minerva.errors import UserError
from minerva.site import configuration, source
from minerva.site.formulas import Formulas

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "minerva"
LINK = re.compile(r"\[([^\]]*)\]\(\.\./([^)#]+)\)")  # out of docs/


def modules() -> dict[str, Path]:
    """The source files, by the names of their modules."""
    files = [path for path in sorted(PACKAGE.rglob("*.py")) if path.name != "__init__.py"]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in files}


def assemble(folder: Path, site: Path) -> Path:
    """Write all pages below ``folder``, which is made anew. Returns the configuration for MkDocs, which builds into ``site``.

    Raises:
        UserError: a public name has no docstring, or a formula does not parse.
    """
    if missing := undocumented():
        raise UserError(f"public names without a docstring: {', '.join(missing)}")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder / "docs")
    for path in (folder / "docs").glob("*.md"):
        path.write_text(lead(path.read_text(encoding="utf-8")), encoding="utf-8")
    formulas = Formulas()
    pages = {"index": home(), "configuration": configuration.page()}
    for name, path in modules().items():
        pages[f"source/{name}"] = source.page(path, name, formulas)
        pages[f"api/{name}"] = f"# {name}\n\n[Its source](../source/{name}.md)\n\n::: {name}\n"
    for name, text in pages.items():
        page = folder / "docs" / f"{name}.md"
        page.parent.mkdir(exist_ok=True)
        page.write_text(text, encoding="utf-8")
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    short = {name: name.removeprefix("minerva.") for name in modules()}
    config["nav"] += [
        {"Configuration": "configuration.md"},
        {"API": [{text: f"api/{name}.md"} for name, text in short.items()]},
        {"Source": [{text: f"source/{name}.md"} for name, text in short.items()]},
    ]
    config |= {"docs_dir": str(folder / "docs"), "site_dir": str(site)}
    (folder / "mkdocs.yml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    return folder / "mkdocs.yml"


def keep_here(site: Path) -> None:
    """Have the pages of a built site take from it what Material would fetch: what lets a page that is a file be searched."""
    for page in site.rglob("*.html"):
        up = "../" * (len(page.relative_to(site).parts) - 1)
        text = page.read_text(encoding="utf-8")
        page.write_text(
            text.replace("https://unpkg.com/iframe-worker/shim", f"{up}assets/iframe-worker/shim.js"), encoding="utf-8"
        )


def lead(markdown: str) -> str:
    """A page of docs/ with its links to files of the repository led to their pages, where they have one."""

    def place(found: re.Match[str]) -> str:
        text, path = found.groups()
        if path.startswith("minerva/") and path.endswith(".py"):
            return f"[{text}](source/{'.'.join(Path(path).with_suffix('').parts)}.md)"
        return f"[{text}](configuration.md)" if path.startswith("conf") else f"`{path}`"

    return LINK.sub(place, markdown)


def home() -> str:
    """The README as a page beside those of docs/."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"\]\((?!http|#|docs/)", "](../", text)
    return lead(text.replace("](docs/", "]("))


def undocumented(root: Path = ROOT) -> list[str]:
    """Public modules, classes, functions and methods of the package below ``root`` that have no docstring."""
    found: list[str] = []

    def walk(thing: Any) -> None:
        if thing.is_alias or (thing.name.startswith("_") and thing.name != "__init__"):
            return
        if thing.kind.value in ("module", "class", "function") and not thing.docstring and not _excused(thing):
            found.append(thing.path)
        if thing.kind.value in ("module", "class"):
            for member in thing.members.values():
                walk(member)

    walk(griffe.load("minerva", search_paths=[str(root)], try_relative_path=False))
    return found


def _excused(thing: Any) -> bool:
    """What its class or its protocol explains: a constructor; what a subpackage's name says."""
    return thing.name == "__init__" or (thing.kind.value == "module" and thing.is_init_module and not thing.is_package)
