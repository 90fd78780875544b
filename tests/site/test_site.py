"""The documentation as it is built."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys

from tests.conftest import ROOT


def test_it_fetches_nothing(site):
    for page in site.rglob("*.html"):
        for tag in re.findall(r"<(?:script|link|img|iframe)\b[^>]*>", page.read_text()):
            assert not re.search(r'(?:src|href)="?(?:https?:)?//', tag) or 'rel="canonical"' in tag, f"{page}: {tag}"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(\W?https?:|@import", sheet.read_text()), sheet


def test_formulas_are_rendered(site):
    page = (site / "source" / "minerva.algos.ppo.html").read_text()
    source = (ROOT / "minerva" / "algos" / "ppo.py").read_text()
    assert page.count('class="katex-display"') == 2 * source.count("# LaTeX: ") > 10
    assert (site / "assets" / "katex" / "katex.min.css").exists()
    fonts = {path.name for path in (site / "assets" / "katex" / "fonts").iterdir()}
    sheet = (site / "assets" / "katex" / "katex.min.css").read_text()
    assert set(re.findall(r"fonts/([\w-]+\.woff2)", sheet)) == fonts


def test_it_can_be_searched(site):
    index = next(path for path in (site / "search").iterdir() if path.name in ("search_index.js", "search_index.json"))
    text = index.read_text().removeprefix("var __index = ")
    titles = {entry["title"] for entry in json.loads(text)["docs"]}
    assert {"V-MPO", "Configuration", "minerva.algos.ppo"} <= titles


def test_a_broken_link_fails(tmp_path):
    """In a copy of what the documentation is made of."""
    for name in ("minerva", "conf", "docs", "scripts"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("README.md", "mkdocs.yml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "docs" / "broken.md").write_text("[nowhere](nowhere.md)")
    environ = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "scripts/docs.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 1
    assert "nowhere.md" in done.stderr
