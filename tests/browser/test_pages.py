"""Every page in a browser: no error, no request, no accessibility violation, no sideways scroll."""

from __future__ import annotations

import pytest

from opened_pages import OpenPage, scrolls_sideways, violations_of, wait_for_run
from shown_pages import HOSTILE, PAGES


@pytest.mark.parametrize(
    ("name", "size", "scheme"),
    [
        *((name, "phone", "dark") for name in PAGES if name != "large"),
        *((name, "desktop", "light") for name in ("violation", "report", "large")),
        ("replay", "desktop", "dark"),
        ("vector", "phone", "light"),
    ],
)
def test_page_is_sound(open_page: OpenPage, name: str, size: str, scheme: str) -> None:
    """A page has no accessibility violation, fits into its window, and does nothing else wrong."""
    page = open_page(name, size, scheme)
    if name == "report":
        runs = page.locator("summary:visible", has_text="Step through it")
        runs.nth(0).click()
        runs.nth(1).click()
        page.wait_for_function("document.querySelectorAll('[data-ready=yes]').length === 2")
    wait_for_run(page)
    assert violations_of(page) == []
    assert not scrolls_sideways(page)


def test_names_are_no_markup(open_page: OpenPage) -> None:
    """Names of a run that are markup are shown as text, and large tokens as they are."""
    page = open_page("hostile", at="#step=5")
    wait_for_run(page)
    assert page.title() == f"kvcanon show: {HOSTILE}"
    assert page.inner_text("h1") == HOSTILE
    page.get_by_role("searchbox").fill("4294967256 4294967257")
    page.keyboard.press("Enter")
    assert "2 of 2 tokens found" in page.inner_text(".show-result")
    assert HOSTILE in page.inner_text(".show-box-node")


def test_empty_run_says_so(open_page: OpenPage) -> None:
    """A run without a step shows the new cache."""
    page = open_page("empty")
    wait_for_run(page)
    assert page.inner_text("[role=tree]").strip() == "The tree is empty."
    assert "Step 0 of 0: the new cache." in page.inner_text("[role=status]")


def test_broken_tree_is_drawn(open_page: OpenPage) -> None:
    """Nodes that the root does not reach are drawn apart, and what a breach names is marked."""
    page = open_page("broken")
    wait_for_run(page)
    tree = page.inner_text("[role=tree]")
    assert "2 nodes that the root does not reach:" in tree
    assert page.locator(".show-is-broken").count() == 2
    assert "Breaks TREE-1 one_root" in page.inner_text(".show-breaches")


def test_hidden_state_is_told_by_events(open_page: OpenPage) -> None:
    """Of a cache without snapshots the tree has the pages that its events stored."""
    page = open_page("hidden", at="#step=7")
    wait_for_run(page)
    assert page.locator("[role=treeitem]").count() == 3
    assert "does not show its state" in page.inner_text("header")
