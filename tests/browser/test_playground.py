"""The playground in a browser, opened as a file: a case is made, broken, shared and saved."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page

from kvcanon.conformance.vectors import vector_from_json
from kvcanon.lab.site.playground.bundle import PAGE, TARBALL, write_playground
from kvcanon.spec.law import LAWS
from opened_pages import OpenPage, scrolls_sideways, violations_of
from paths import ROOT

pytestmark = pytest.mark.nightly

START_MS = 60_000
"""Python starts in a few seconds, and on a busy machine in many."""


@pytest.fixture(scope="module", name="playground")
def written_playground(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the page."""
    if not (ROOT / TARBALL).exists():
        pytest.fail(f"there is no {TARBALL}; `make playground` brings it")
    folder = tmp_path_factory.mktemp("site") / "play"
    write_playground(ROOT, folder)
    return folder / PAGE


def started(page: Page) -> Page:
    """The page once its first case is drawn."""
    page.wait_for_selector("[data-playground][data-ready=yes]", timeout=START_MS)
    return page


def act(page: Page, press: str) -> str:
    """Press a button, and wait for the case that is then drawn; returns what the page says."""
    before = page.get_attribute("[data-playground]", "data-played")
    page.get_by_role("button", name=press, exact=True).click()
    page.wait_for_function(
        f"document.querySelector('[data-playground]').dataset.played !== '{before}'"
    )
    return page.inner_text(".play-status")


def test_a_reader_breaks_a_law_shares_and_saves_it(
    open_page: OpenPage, playground: Path, tmp_path: Path
) -> None:
    """Calls are played one by one, a fault breaks its law, the case is an address and a file."""
    page = started(open_page(playground, "wide"))
    assert page.inner_text(".play-status") == "No law is broken after 0 actions."
    assert act(page, "Call") == "No law is broken after 1 action."
    page.get_by_role("textbox", name="Prompt").fill("ABCA")
    assert act(page, "Call") == "No law is broken after 2 actions."
    assert page.locator(".show-calls").get_by_text("cache.insert").count() == 2
    assert act(page, "Undo") == "No law is broken after 1 action."
    page.get_by_label("Planted fault").select_option("refusal_evicts")
    said = act(page, "Show me a case in which it breaks its law")
    assert "broken" in said
    assert "Breaks" in page.inner_text(".show-breaches")
    # The address has the whole case, also the fault.
    again = started(open_page(page.url, "wide"))
    assert again.inner_text(".play-status") == said
    assert again.get_by_label("Planted fault").input_value() == "refusal_evicts"
    assert again.inner_text(".show-calls") == page.inner_text(".show-calls")
    with again.expect_download() as saved:
        again.get_by_role("button", name="Save it as a vector").click()
    file = tmp_path / saved.value.suggested_filename
    saved.value.save_as(file)
    vector = vector_from_json(file.stem, file.read_text("utf-8"))
    assert vector.mutant == "refusal_evicts"
    assert f"{vector.law_id}" in said


def test_what_cannot_be_played_is_said(open_page: OpenPage, playground: Path) -> None:
    """A cache that cannot be made is refused in one line, and the last case stays."""
    page = started(open_page(playground))
    act(page, "Call")
    page.get_by_label("Tokens a page").fill("0")
    page.get_by_role("button", name="Make it anew").click()
    page.wait_for_selector(".play-wrong")
    assert "page_size" in page.inner_text(".play-status")
    assert page.locator(".show-calls").count() == 1
    page.get_by_label("Tokens a page").fill("2")
    assert act(page, "Make it anew, with the same calls") == "No law is broken after 1 action."


@pytest.mark.parametrize("address", ["#case=", "#case=xyz", "#case=e30", "#step=3"])
def test_an_address_that_names_no_case_begins_anew(
    open_page: OpenPage, playground: Path, address: str
) -> None:
    """Whatever the address has, the page starts."""
    page = started(open_page(playground, at=address))
    assert page.inner_text(".play-status") == "No law is broken after 0 actions."


@pytest.mark.parametrize(("size", "scheme"), [("tall phone", "dark"), ("wide", "light")])
def test_everybody_can_use_it(
    open_page: OpenPage, playground: Path, size: str, scheme: str
) -> None:
    """Nothing scrolls sideways, and axe finds nothing."""
    page = started(open_page(playground, size, scheme))
    act(page, "Call")
    assert not scrolls_sideways(page)
    assert violations_of(page) == []


def test_links_to_laws_stay_on_the_site(open_page: OpenPage, playground: Path) -> None:
    """A law is read on the site that the page is on, which need not be online."""
    for law_id in LAWS:
        law = playground.parent.parent / "laws" / law_id / "index.html"
        law.parent.mkdir(parents=True)
        law.write_text("<title>here</title>", "utf-8")
    page = started(open_page(playground))
    page.get_by_label("Planted fault").select_option("refusal_evicts")
    act(page, "Show me a case in which it breaks its law")
    page.locator(".show-breaches a").first.click()
    page.wait_for_url("**/laws/*/index.html")
