"""The documentation in a browser, opened from its folder. Needs Debian's chromium."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Visit:
    """A page, and what went wrong on it."""

    def __init__(self, browser: Any, site: Path, name: str, width: int = 1280) -> None:
        self.page = browser.new_context(viewport={"width": width, "height": 800}).new_page()
        self.errors: list[str] = []
        self.fetched: list[str] = []
        self.page.on("console", lambda message: message.type == "error" and self.errors.append(message.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.fetched.append(request.url))
        self.page.goto(f"file://{site}/{name}")


@pytest.mark.parametrize(
    "name", ["index", "vmpo", "configuration", "api/minerva.algos.ppo", "source/minerva.algos.vmpo"]
)
def test_a_page_opens_without_an_error_and_from_here_alone(browser, site, name):
    visit = Visit(browser, site, f"{name}.html")
    assert visit.page.locator("h1").first.is_visible()
    assert visit.errors == []
    assert all(url.startswith((f"file://{site}", "data:", "blob:")) for url in visit.fetched)


def test_formulas_are_drawn_in_their_own_fonts(browser, site):
    page = Visit(browser, site, "source/minerva.algos.ppo.html").page
    formulas = page.locator(".formula .katex-html")
    assert formulas.count() > 10
    for i in range(formulas.count()):
        box = formulas.nth(i).bounding_box()
        assert box["width"] > 20
        assert box["height"] > 10
    page.evaluate("document.fonts.ready")
    loaded = page.evaluate("[...document.fonts].filter(font => font.status == 'loaded').map(font => font.family)")
    assert {"KaTeX_Main", "KaTeX_Math"} <= set(loaded)


def test_search_finds(browser, site):
    visit = Visit(browser, site, "index.html")
    visit.page.locator("[data-md-component=search-query]").click()
    visit.page.keyboard.type("interquartile", delay=20)
    result = visit.page.locator(".md-search-result__link").first
    result.wait_for(timeout=20_000)
    assert visit.errors == []


@pytest.mark.parametrize("name", ["index", "results", "configuration", "source/minerva.distributions"])
def test_a_phone_can_show_it(browser, site, name):
    """Nothing is wider than the screen but what scrolls by itself, and letters are not small."""
    page = Visit(browser, site, f"{name}.html", width=390).page
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert (
        page.evaluate("parseFloat(getComputedStyle(document.querySelector('.md-typeset p, .md-typeset td')).fontSize)")
        >= 11
    )
