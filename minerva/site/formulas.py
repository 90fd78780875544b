"""LaTeX to HTML, by KaTeX, when the documentation is built: a page of it runs no code of its own."""

from __future__ import annotations

from pathlib import Path

from py_mini_racer import JSEvalException, MiniRacer

from minerva.errors import UserError

KATEX = Path(__file__).parents[2] / "docs" / "assets" / "katex" / "katex.min.js"


class Formulas:
    """Renders formulas."""

    def __init__(self) -> None:
        self._engine = MiniRacer()
        self._engine.eval(KATEX.read_text(encoding="utf-8"))

    def render(self, latex: str, display: bool, where: str) -> str:
        """HTML and MathML of ``latex``, in a line of its own or within one.

        Raises:
            UserError: naming ``where`` it stands.
        """
        options = {"displayMode": display, "throwOnError": True, "strict": "error"}
        try:
            return str(self._engine.call("katex.renderToString", latex, options))
        except JSEvalException as error:
            reason = next((line for line in str(error).splitlines() if "KaTeX parse error" in line), str(error))
            raise UserError(f"{where}: {latex}: {reason}") from error
