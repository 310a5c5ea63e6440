"""What tests ask of a page that a browser has opened."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import TypeAlias

from playwright.sync_api import Page

OpenPage: TypeAlias = Callable[..., Page]
"""The fixture `open_page`: takes a page, a size, a colour scheme and the end of the address."""


@cache
def axe_script() -> str:
    """The script of axe-core."""
    return files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8")


def violations_of(page: Page) -> list[str]:
    """What axe-core finds in a page, each as its rule and the element.

    It does not read the style sheets itself: of a file it may not, and the browser would say so.
    """
    page.evaluate(axe_script())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations'], preload: false})")[
        "violations"
    ]
    return [f"{each['id']}: {node['html'][:200]}" for each in found for node in each["nodes"]]


def scrolls_sideways(page: Page) -> bool:
    """Whether a page is wider than its window."""
    return bool(page.evaluate("document.documentElement.scrollWidth > innerWidth"))


def wait_for_run(page: Page) -> None:
    """Wait until the run of a page is drawn."""
    page.wait_for_selector("[data-ready=yes]", state="attached")


def said(page: Page) -> str:
    """What the page said last to a reader who hears it."""
    return page.inner_text("[role=status]")
