"""Source files as pages, with their formulas: a list of them and the whole file; and one listing in which they stand where they are meant."""

from __future__ import annotations

import html
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from minerva.site.formulas import Formulas

MARKER = "# LaTeX: "


@dataclass(frozen=True)
class Annotation:
    """A formula in a source file.

    Attributes:
        line: its number, from 1.
        context: the line of code that it is about: its own, or the next.
        latex: the formula.
    """

    line: int
    context: str
    latex: str


def find_annotations(source: str) -> list[Annotation]:
    """The formulas of ``source``, in their order."""
    lines, found = source.splitlines(), []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and token.string.startswith(MARKER):
            number, column = token.start
            here = lines[number - 1][:column].strip()
            rest = (line.strip() for line in lines[number:])
            context = here or next((text for text in rest if text and not text.startswith("#")), "")
            found.append(Annotation(number, context, token.string.removeprefix(MARKER)))
    return found


def page(path: Path, name: str, formulas: Formulas) -> str:
    """Markdown of the page of a source file; ``name`` is what it is called there."""
    source = path.read_text(encoding="utf-8")
    found = {note.line: note for note in find_annotations(source)}
    shown = {line: formulas.render(note.latex, True, f"{name}:{line}") for line, note in found.items()}
    code = highlight(source, PythonLexer(stripnl=False), HtmlFormatter(nowrap=True)).splitlines()
    parts = [f"# {name}"]
    if found:
        parts += [
            "## Formulas",
            _list(found, shown),
            "## Source",
            _listing(code, {}, "L"),
            "## Source with its formulas { data-search-exclude }",
            _listing(code, shown, "M"),
        ]
    else:
        parts += [_listing(code, {}, "L")]
    return "\n\n".join(parts) + "\n"


def _list(found: dict[int, Annotation], shown: dict[int, str]) -> str:
    rows = "".join(
        f'<tr><td><a href="#L{line}">{line}</a></td><td><code>{html.escape(note.context)}</code>{shown[line]}</td></tr>'
        for line, note in found.items()
    )
    return f'<div class="annotations"><table><thead><tr><th>line</th><th>code, and its formula</th></tr></thead><tbody>{rows}</tbody></table></div>'


def _listing(code: list[str], shown: dict[int, str], anchor: str) -> str:
    """The lines with their numbers; in the place of those that are ``shown``, what is."""

    def blocks() -> Iterator[str]:
        lines: list[str] = []
        for number, line in enumerate(code, start=1):
            if number in shown:
                if lines:
                    yield _block(lines)
                lines = []
                # A marker has a line to itself, or the rest of one, which stays.
                before = re.sub(r'<span class="c1?"># LaTeX: .*$', "", line).rstrip()
                if re.sub(r"<[^>]+>", "", before).strip():
                    lines.append(_line(number, before, anchor))
                indent = len(re.sub(r"<[^>]+>", "", line)) - len(re.sub(r"<[^>]+>", "", line).lstrip())
                yield f'<div class="formula" id="{anchor}{number}" style="margin-left:{indent + 5}ch">{shown[number]}</div>'
            else:
                lines.append(_line(number, line, anchor))
        if lines:
            yield _block(lines)

    return f'<div class="listing">{"".join(blocks())}</div>'


def _line(number: int, line: str, anchor: str) -> str:
    return f'<span id="{anchor}{number}"><span class="number">{number:>4} </span>{line}</span>'


def _block(lines: list[str]) -> str:
    # An empty line within would end the raw HTML for Markdown: as an entity it does not.
    return '<div class="highlight"><pre><code>' + "&#10;".join(lines) + "</code></pre></div>"
