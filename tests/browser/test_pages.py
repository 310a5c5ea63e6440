"""Every page in a browser: no error, no request, no accessibility violation, no sideways scroll."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

from kvcanon.spec.law import SITE
from opened_pages import OpenPage, said, scrolls_sideways, violations_of, wait_for_run
from paths import DOCS
from shown_pages import HOSTILE, PAGES

pytestmark = pytest.mark.nightly

PRINTS_BACKGROUND = "each => getComputedStyle(each).printColorAdjust"
TOO_WIDE = """() => [...document.querySelectorAll("main *")].filter((each) => {
  const box = each.getBoundingClientRect(), parent = each.parentElement;
  const holds = getComputedStyle(parent).overflowX === "visible";
  return box.width && holds && !each.closest("svg")
    && box.right > parent.getBoundingClientRect().right + 1;
}).map((each) => `${each.tagName} ${each.className}`)"""
"""The elements that are wider than what they are in."""


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
    assert page.evaluate(TOO_WIDE) == []


@pytest.mark.parametrize("name", ["report", "replay"])
def test_page_fits_when_it_is_enlarged(open_page: OpenPage, name: str) -> None:
    """On a phone whose reader enlarges everything, nothing is cut off or scrolls sideways."""
    page = open_page(name, "enlarged")
    if name == "report":
        page.locator("summary:visible", has_text="Step through it").first.click()
    wait_for_run(page)
    assert not scrolls_sideways(page)
    assert page.evaluate(TOO_WIDE) == []
    page.get_by_role("button", name="First step").first.press("Enter")
    page.locator(".show-tree").first.scroll_into_view_if_needed()
    controls = page.locator(".show-controls").first.bounding_box()
    assert controls is not None
    assert controls["height"] < 0.6 * 256, "the steps leave room for what they show"


def test_endless_names_are_cut(open_page: OpenPage) -> None:
    """A name without end leaves room for the run."""
    page = open_page("endless", "phone")
    wait_for_run(page)
    box = page.locator("header").bounding_box()
    assert box is not None
    assert box["height"] < 2000


def test_printed_page_keeps_its_letters(open_page: OpenPage) -> None:
    """On paper the letters of the tree keep the background that makes them readable."""
    page = open_page("vector", at="#step=7")
    wait_for_run(page)
    page.emulate_media(media="print")
    assert page.locator(".show-controls").is_hidden()
    for part in (".show-cell.is-on", ".show-bar .is-tree", ".show-map .is-tree"):
        assert page.locator(part).first.evaluate(PRINTS_BACKGROUND) == "exact"
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
    """Of a cache without snapshots the tree has the pages that its events stored, and no more."""
    page = open_page("hidden", at="#step=7")
    wait_for_run(page)
    assert page.locator("[role=treeitem]").count() == 3
    assert "does not show its state" in page.inner_text("header")
    assert titles(page) == [
        "Tree", "Calls", "Over time", "This step", "Node", "Where the data is",
    ]  # fmt: skip
    page.locator("[role=treeitem]").first.click()
    assert "Use" not in page.inner_text(".show-box-node")
    assert "copied" not in page.inner_text(".show-places")


def test_silent_cache_has_calls_and_the_mend(open_page: OpenPage) -> None:
    """A cache that shows nothing has no empty panels; the page says what would fill them."""
    page = open_page("silent", "phone")
    wait_for_run(page)
    assert titles(page) == ["Calls", "This step"]
    lacks = page.inner_text("header")
    assert "there is no tree" in lacks
    assert "give its adapter take_events" in lacks
    mend = page.locator("header a").get_attribute("href")
    assert mend == f"{SITE}adapters.html"
    assert (DOCS / "adapters.md").is_file()
    assert "Crash: KeyError" in page.inner_text(".show-breaches")
    assert page.locator(".show-breaches button").count() == 0, "there is no node to select"
    assert "No node changed" not in page.inner_text(".show-box-step")
    assert said(page).count("node 1 has no slots") == 1
    page.keyboard.press("ArrowLeft")
    page.wait_for_function("document.querySelector('.show-breaches').innerText === ''")


def test_stream_marks_the_blocks_of_a_violation(open_page: OpenPage) -> None:
    """A recording is shown batch by batch; the block that breaks a law is a node that is marked."""
    page = open_page("stream", "desktop", "dark")
    wait_for_run(page)
    assert "Breaks EVENT-2" in page.inner_text(".show-breaches")
    page.locator(".show-breaches").get_by_role("button", name="node 1").press("Enter")
    assert page.locator(".show-is-broken").count() == 1
    assert titles(page)[:2] == ["Tree", "Batches"]
    for law in ("EVENT-2", "EVENT-12", "WIRE-1", "EVENT-1"):
        page.get_by_role("button", name="Go to the step that breaks a law").press("Enter")
        page.wait_for_function(
            "law => document.querySelector('.show-breaches').innerText.includes(`Breaks ${law}`)",
            arg=law,
        )
    assert "1 node that the root does not reach:" in page.inner_text("[role=tree]")
    assert page.locator(".show-is-broken .show-odd").count() == 1


def titles(page: Page) -> list[str]:
    """The headings of the panels."""
    return [each for each in page.locator(".show-title").all_inner_texts() if each]
