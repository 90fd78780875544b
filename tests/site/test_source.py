"""Pages out of the source."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from minerva.errors import UserError
from minerva.site import configuration
from minerva.site.build import home, lead, modules, undocumented
from minerva.site.formulas import Formulas
from minerva.site.source import Annotation, find_annotations, page

SOURCE = '''"""A module that says "# LaTeX: not me" in its docstring."""


def square(x):
    # LaTeX: y = x^2
    # and a remark
    y = x * x  # LaTeX: \\\\int_0^1

    return y


text = "# LaTeX: nor me"
'''


class Text(HTMLParser):
    """What a reader sees of a listing: its lines, by their anchors; and that what is opened is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.lines: dict[str, str] = {}
        self.open: list[tuple[str, str]] = []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        facts = dict(attrs)
        self.open.append((tag, facts.get("id") or ""))
        if facts.get("class") == "number":
            self.open[-1] = (tag, "number")

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        ids = [id for _, id in self.open if id]
        if ids and ids[-1] != "number":
            self.lines[ids[-1]] = self.lines.get(ids[-1], "") + data


@pytest.fixture(scope="module")
def formulas() -> Formulas:
    return Formulas()


def test_formulas_are_those_of_comments_with_the_code_that_they_are_about():
    assert find_annotations(SOURCE) == [
        Annotation(5, "y = x * x  # LaTeX: \\\\int_0^1", "y = x^2"), Annotation(7, "y = x * x", "\\\\int_0^1"),
    ]  # fmt: skip


def test_a_source_is_shown_whole_and_with_formulas_in_their_places(tmp_path, formulas):
    (tmp_path / "a.py").write_text(SOURCE.replace("\\\\\\\\", "\\\\"))
    text = page(tmp_path / "a.py", "a", formulas)
    whole, _, placed = text.partition("## Source with its formulas")
    assert whole.startswith("# a\n\n## Formulas\n")
    shown = Text(whole.partition("## Source\n")[2]).lines
    lines = (tmp_path / "a.py").read_text().splitlines()
    assert [shown.get(f"L{i}", "").rstrip() for i in range(1, len(lines) + 1)] == [line.rstrip() for line in lines]
    assert placed.count('class="formula"') == 2
    assert placed.count("katex-display") == 2
    assert "# LaTeX: y = x^2" not in re.sub(r"<[^>]+>", "", placed)
    assert "y = x * x" in re.sub(r"<[^>]+>", "", placed)
    assert placed.index("def") < placed.index('id="M5"') < placed.index("and a remark") < placed.index('id="M7"')
    assert "\n\n" not in placed.partition("<div")[2].strip(), "an empty line would end the raw HTML"


def test_each_of_our_own_formulas_parses_and_each_module_has_its_page(formulas):
    names = modules()
    assert {"minerva.algos.ppo", "minerva.distributions", "minerva.site.source"} <= names.keys()
    for name, path in names.items():
        text = page(path, name, formulas)
        count = len(find_annotations(path.read_text()))
        assert text.count('<div class="formula"') == count
        Text(text)


def test_a_formula_that_does_not_parse_is_named(tmp_path, formulas):
    (tmp_path / "a.py").write_text("x = 1  # LaTeX: \\frac{1\n")
    with pytest.raises(UserError, match=r"^a:1: \\frac\{1: KaTeX parse error|^a:1: .*KaTeX parse error"):
        page(tmp_path / "a.py", "a", formulas)


def test_all_that_is_public_has_a_docstring():
    assert undocumented() == []


def test_what_has_none_is_named(tmp_path):
    package = tmp_path / "minerva"
    package.mkdir()
    (package / "__init__.py").write_text('"""A package."""\nfrom minerva.a import A\n')
    (package / "a.py").write_text(
        'class A:\n    """A class."""\n    def __init__(self): ...\n    def run(self): ...\n    def _own(self): ...\n\ndef f(): ...\n'
    )
    assert undocumented(tmp_path) == ["minerva.a", "minerva.a.A.run", "minerva.a.f"]


def test_the_reference_has_each_key_with_its_default_and_what_is_allowed():
    text = configuration.page()
    rows = {
        row.split(" | ")[0].strip("| `"): row.split(" | ")[1:] for row in text.splitlines() if row.startswith("| `")
    }
    assert rows["algo.gamma"] == ["`0.99`", "a number from 0 to 1", "discount |"]
    assert rows["seed"][:2] == ["`0`", "a whole number from 0 to 4294967295"]
    assert rows["network.backbone.d_model"][0] == "`64`"
    assert rows["network.head"][1].startswith("one of gaussian")
    assert rows["amp"][1] == "one of bf16, fp16, or null"
    assert rows["env.threads"][1].startswith("auto, or from 1 to")
    for group in ("algo", "env", "network", "trainer"):
        assert any(key.startswith(group + ".") for key in rows)


def test_links_out_of_the_documentation_lead_to_pages_of_it():
    assert lead("[a](../minerva/envs/probe.py), [b](../conf/algo/ppo.yaml), [c](../LICENSE), [d](x.md)") == (
        "[a](source/minerva.envs.probe.md), [b](configuration.md), `LICENSE`, [d](x.md)"
    )
    links = re.findall(r"\]\(([^)]+)\)", home())
    assert "networks.md" in links
    assert not [link for link in links if link.startswith(("docs/", "../"))]
