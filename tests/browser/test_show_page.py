"""A page of `kvcanon show`, used by keyboard and by pointer."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page

from kvcanon.conformance.judge import sentence
from kvcanon.spec.law import LAWS
from opened_pages import OpenPage, said, scrolls_sideways, wait_for_run

pytestmark = pytest.mark.nightly

SEEN_TWICE = """async () => {
  const { run } = document.querySelector("[data-show]").viewer;
  const state = () => {
    const { rows, recency, pools, holds, transfers, slots, places } = run.state;
    const order = [...rows.values()].sort((a, b) => a[0] - b[0]);
    const used = Object.entries(slots).filter(([, count]) => count).sort();
    return JSON.stringify([order, recency, pools, holds, transfers, used, places]);
  };
  const first = [];
  for (let step = 0; step <= run.last; step++) {
    await run.seek(step);
    first.push(state());
  }
  const differ = [];
  const back = Array.from({ length: 100 }, (_, at) => run.last - at);
  for (const step of [...back, 171, 0, 228, run.last, 3]) {
    await run.seek(step);
    if (state() !== first[step]) differ.push(step);
  }
  return [new Set(first).size, run.table.starts.length, differ];
}"""
"""Goes on step by step, then back and to and fro: the states that differ from those before."""


def label(page: Page) -> str:
    """The step that is shown."""
    return page.inner_text(".show-label")


def test_violation_opens_where_it_breaks(open_page: OpenPage) -> None:
    """A page with a violation shows its step first, and goes back by the arrow keys."""
    page = open_page("violation", "phone")
    wait_for_run(page)
    last = label(page)
    assert last == "call 4 of 4", "calls are counted as the list counts them"
    assert page.inner_text(".show-calls [aria-current]").startswith("!")
    assert "Breaks ALLOC-3 counts_are_true" in page.inner_text(".show-breaches")
    assert said(page).count("ALLOC-3") == 1, "a break is said once"
    assert "Breaks ALLOC-3" in said(page)
    address = page.locator(".show-breaches a").get_attribute("href")
    assert address == LAWS["ALLOC-3"].address
    page.keyboard.press("ArrowLeft")
    page.wait_for_function("document.querySelector('.show-breaches').innerText === ''")
    assert label(page) == "after call 3 of 4", "to write bytes is no call of the cache"
    assert said(page).startswith("After call 3 of 4: ")
    page.get_by_role("button", name="Go to the step that breaks a law").focus()
    page.keyboard.press("Enter")
    page.wait_for_function("document.querySelector('.show-breaches').innerText !== ''")
    assert label(page) == last


@pytest.mark.parametrize(("size", "scheme"), [("tall phone", "light"), ("wide", "dark")])
def test_violation_is_in_the_first_screen(open_page: OpenPage, size: str, scheme: str) -> None:
    """What breaks is read without scrolling, the law, its sentence and what is wrong here."""
    page = open_page("violation", size, scheme)
    wait_for_run(page)
    statement = page.locator(".show-breach p", has_text="The law: ").first
    assert LAWS["ALLOC-3"].statement.split("\n\n")[0].split()[-1] in statement.inner_text()
    box, view = statement.bounding_box(), page.viewport_size
    assert box is not None
    assert view is not None
    assert box["y"] + box["height"] <= view["height"]


def test_vector_opens_at_its_last_call(open_page: OpenPage) -> None:
    """Where nothing breaks the page shows the call that the vector is about, not an empty tree."""
    page = open_page("vector")
    wait_for_run(page)
    words = label(page).split()
    assert words[0] == "call"
    assert words[1] == words[3]
    here = page.locator(".show-calls [aria-current]")
    assert here.locator(".show-number").inner_text() == words[1]
    page.get_by_role("button", name="First step").press("Enter")
    page.wait_for_function("document.querySelector('.show-label').innerText.startsWith('start')")
    assert label(page) == f"start, {words[1]} calls"


def test_tree_has_the_notation_of_the_pictures(open_page: OpenPage) -> None:
    """Media have the names of the pictures, tokens of a page a dot between, locks a padlock."""
    page = open_page("replay", at="#step=40")
    wait_for_run(page)
    assert {*page.locator(".show-line .show-cell").all_inner_texts()} == {"GPU", "CPU"}
    tokens = page.locator(".show-tokens").first.inner_text()
    assert re.match(r"\d+(·\d+){7}( |…|$)", tokens), tokens
    assert page.locator(".show-locks svg").count() > 0


def test_buttons_of_steps_stand_together(open_page: OpenPage) -> None:
    """Back and forward are neighbours, and Play is not between them."""
    page = open_page("vector")
    wait_for_run(page)
    names = [
        each.get_attribute("aria-label") for each in page.locator(".show-controls button").all()
    ]
    assert names == ["First step", "Step back", "Step forward", "Last step", "Play"]


@pytest.mark.parametrize(
    ("size", "scheme"),
    [("tall phone", "light"), ("tall phone", "dark"), ("wide", "light"), ("wide", "dark")],
)
def test_report_shows_the_failure_first(open_page: OpenPage, size: str, scheme: str) -> None:
    """The law and its sentence are the headline; what is wrong is in the first screen."""
    page = open_page("report", size, scheme)
    headline = page.inner_text("h1")
    assert headline == f"LOCK-8 is broken. {sentence(LAWS['LOCK-8'])}"
    here = page.locator(".failure .said").first
    assert here.inner_text().startswith("Here: ")
    box, view = here.bounding_box(), page.viewport_size
    assert box is not None
    assert view is not None
    assert box["y"] + box["height"] <= view["height"]
    assert not scrolls_sideways(page)


def test_long_lists_of_a_report_are_folded(open_page: OpenPage) -> None:
    """Laws that were not exercised, and all laws, stand behind a line with their number."""
    page = open_page("report", "tall phone")
    summary = page.locator("summary", has_text="not exercised").first
    assert summary.inner_text() == "1 law not exercised"
    assert page.locator("dl.reasons").first.is_hidden()
    summary.click()
    assert "DATA-1" in page.locator("dl.reasons").first.inner_text()
    assert page.locator("summary", has_text=f"All {len(LAWS)} laws").first.is_visible()
    assert page.locator("th", has_text="TREE-1").first.is_hidden()


def test_tree_is_used_by_keyboard(open_page: OpenPage) -> None:
    """Arrows move through the tree, Enter selects a node, and Left folds its children."""
    page = open_page("vector", "desktop", "dark", "#step=7")
    wait_for_run(page)
    step = label(page)
    page.locator("[role=treeitem][tabindex='0']").focus()
    focused = "document.activeElement.getAttribute('aria-label')"
    first = page.evaluate(focused)
    page.keyboard.press("ArrowDown")
    assert page.evaluate(focused) != first
    page.keyboard.press("Enter")
    assert page.locator("[role=treeitem][aria-selected=true]").count() == 1
    assert "Tokens" in page.inner_text(".show-box-node")
    assert "Node 5" in said(page)
    lines = page.locator("[role=treeitem]").count()
    page.keyboard.press("ArrowLeft")
    assert page.locator("[role=treeitem]").count() == lines - 1
    page.keyboard.press("ArrowRight")
    assert page.locator("[role=treeitem]").count() == lines
    page.keyboard.press("End")
    assert "Node 4" in page.evaluate(focused)
    assert label(page) == step, "arrows in the tree are no steps"


def test_steps_back_undo_steps_forward(open_page: OpenPage) -> None:
    """To go back, or to jump, leads to the same state as to go there step by step."""
    page = open_page("replay", at="#step=0")
    wait_for_run(page)
    states, parts, differ = page.evaluate(SEEN_TWICE)
    assert states > 200
    assert parts > 1, "jumps go through several parts"
    assert differ == []


def test_tokens_and_filters_find_nodes(open_page: OpenPage) -> None:
    """A prefix of tokens leads to its nodes, and a filter leaves only the nodes that match."""
    page = open_page("vector", "phone", at="#step=7")
    wait_for_run(page)
    page.get_by_role("searchbox").fill("0 0 0 0 7")
    page.keyboard.press("Enter")
    assert "4 of 5 tokens found, in nodes 5, 4." in page.inner_text(".show-result")
    assert page.locator(".show-is-found").count() == 2
    page.get_by_role("searchbox").fill("9")
    page.keyboard.press("Enter")
    assert "0 of 1 token found." in page.inner_text(".show-result")
    page.get_by_role("combobox", name="Component").select_option("swa")
    page.get_by_role("combobox", name="Data").select_option("CPU")
    assert "1 node is as the filter says." in page.inner_text(".show-result")
    assert [
        "Node 4" in (each.get_attribute("aria-label") or "")
        for each in page.locator("[role=treeitem]").all()
    ] == [False, True]


def test_large_tree_is_folded(open_page: OpenPage) -> None:
    """Of a large tree a bounded part is drawn; the rest is folded, and opens when asked."""
    page = open_page("large")
    wait_for_run(page)
    page.get_by_role("searchbox").fill("node 3000")
    page.keyboard.press("Enter")
    lines = page.locator("[role=treeitem]")
    before = lines.count()
    assert before < 250
    page.locator(".show-chain").first.click()
    page.locator(".show-more").last.click()
    assert lines.count() > before + 50
    page.keyboard.press("End")
    assert "more" in page.evaluate("document.activeElement.innerText")


def test_charts_lead_to_steps(open_page: OpenPage) -> None:
    """A click on a chart goes to the step there."""
    page = open_page("replay")
    wait_for_run(page)
    chart = page.locator(".show-chart svg").first
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] / 10, box["y"] + 10)
    page.wait_for_function("!document.querySelector('.show-label').innerText.startsWith('start')")
    assert "Hit rate" in page.inner_text(".show-charts")


def test_report_has_runs(open_page: OpenPage) -> None:
    """A failure in a report is opened and stepped through by keyboard, each by itself."""
    page = open_page("report", "phone")
    summaries = page.locator("summary", has_text="Step through it")
    assert summaries.count() >= 2
    summaries.first.focus()
    page.keyboard.press("Enter")
    wait_for_run(page)
    assert page.locator("[data-ready]").count() == 1
    here = label(page)
    page.get_by_role("button", name="Step back").focus()
    page.keyboard.press("ArrowLeft")
    page.wait_for_function(
        "text => document.querySelector('.show-label').innerText !== text", arg=here
    )
    assert "#" not in page.url, "a report does not keep a step in its address"


def test_long_keys_leave_the_answers_in_sight(open_page: OpenPage) -> None:
    """A long prompt is wrapped in a report's calls, and does not push the answers out."""
    page = open_page("report", "desktop")
    calls = page.locator("table.calls").first
    calls.locator("td.code").first.evaluate("(cell, text) => cell.innerText = text", "(0,), " * 60)
    assert calls.evaluate("table => table.scrollWidth <= table.parentElement.clientWidth")
