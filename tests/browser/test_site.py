"""The site of the docs and the laws in a browser: sound pages, a search by keyboard, dark plots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from playwright.sync_api import Page

from built_site import built_site
from opened_pages import OpenPage, scrolls_sideways, violations_of

pytestmark = pytest.mark.nightly

PAGES = (
    "index.html",
    "laws/LOCK-4/index.html",
    "findings.html",
    "ten-minutes.html",
    "performance.html",
    "spec/index.html",
    "spec/state.html",
    "spec/operations.html",
    "spec/definitions.html",
    "spec/print.html",
)


class _Quiet(SimpleHTTPRequestHandler):
    """Serves files, and says nothing of it."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # As its base.
        """Say nothing."""


@pytest.fixture(scope="module", name="site")
def site_of_all() -> Path:
    """The site, built once for all tests, also of other processes."""
    return built_site()


@pytest.fixture(scope="module")
def ways(site: Path) -> Iterator[Mapping[str, str]]:
    """The addresses of the site: as files, and on a server of this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        server_at = f"http://127.0.0.1:{server.server_port}/"
        yield {"files": f"{site.as_uri()}/", "server": server_at}
        server.shutdown()


@pytest.mark.parametrize(
    ("name", "size", "scheme"),
    [
        *((name, "phone", "dark") for name in PAGES),
        *((name, "desktop", "light") for name in PAGES[:2]),
    ],
)
def test_page_of_the_site_is_sound(
    open_page: OpenPage, site: Path, name: str, size: str, scheme: str
) -> None:
    """A page has no accessibility violation, fits into its window, and loads nothing outside."""
    page = open_page(site / name, size, scheme)
    page.wait_for_selector("h1")
    assert violations_of(page) == []
    assert not scrolls_sideways(page)


@pytest.mark.parametrize(
    ("way", "size", "scheme"), [("files", "phone", "light"), ("server", "desktop", "dark")]
)
def test_search_leads_from_a_symptom_to_its_law(
    open_page: OpenPage, ways: Mapping[str, str], way: str, size: str, scheme: str
) -> None:
    """A symptom that is typed into the search finds the page that names its laws, by keyboard."""
    page = open_page(f"{ways[way]}index.html", size, scheme)
    page.wait_for_selector("h1")
    page.keyboard.press("f")
    page.wait_for_function("document.activeElement.matches('.md-search__input')")
    page.keyboard.type("window data gone after a split")
    page.locator(".md-search-result__link").first.wait_for()
    assert violations_of(page) == []
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url("**/symptoms.html*")
    page.locator("article a", has_text="MATCH-5").first.click()
    page.wait_for_url("**/laws/MATCH-5/index.html")


def test_plots_follow_the_colours_of_the_page(open_page: OpenPage, site: Path) -> None:
    """A plot is dark on a dark page, also where the reader chose the page's colours."""
    page = open_page(site / "performance.html", "desktop", "light")
    assert paper_of_plot(page) > 200
    page.locator("label[title='Use dark colours']").click()
    page.wait_for_selector("[data-md-color-scheme=slate]")
    assert paper_of_plot(page) < 60


def test_names_of_faults_are_not_cut_up(open_page: OpenPage, site: Path) -> None:
    """On a phone the name of a mutant is one line of its table, which scrolls."""
    page = open_page(site / "laws/MATCH-5/index.html", "phone")
    name = page.locator("td code", has_text="lookup_pins_what_it_finds").first
    assert name.evaluate("code => code.getClientRects().length") == 1
    assert not scrolls_sideways(page)


def test_name_in_a_law_leads_to_its_definition(open_page: OpenPage, site: Path) -> None:
    """From the code of a law to the field that it reads, and to the function that it calls."""
    page = open_page(site / "laws/REC-1/index.html", "desktop")
    page.locator(".kv-code a", has_text="window_nodes").first.click()
    page.wait_for_url("**/spec/definitions.html#window_nodes")
    assert page.locator("h3#window_nodes").is_visible()
    page.go_back()
    page.locator(".kv-code a", has_text="page_size").first.click()
    page.wait_for_url("**/spec/state.html#CacheConfig.page_size")


@pytest.mark.parametrize("size", ["wide", "tall phone"])
def test_states_of_a_page_can_be_read(open_page: OpenPage, site: Path, size: str) -> None:
    """The picture has letters of 11 px on any screen: at 1440 px it fits, on a phone it scrolls."""
    page = open_page(site / "spec/state.html", size)
    picture = page.locator("svg.kv", has_text="storage").first
    box, column = picture.bounding_box(), page.locator("article").bounding_box()
    assert box is not None
    assert column is not None
    assert (box["width"] <= column["width"]) is (size == "wide")
    letters = "svg => parseFloat(getComputedStyle(svg).fontSize) / svg.viewBox.baseVal.width"
    assert picture.evaluate(letters) * box["width"] >= 10.9
    assert not scrolls_sideways(page)


def test_edition_for_print_is_one_document(open_page: OpenPage, site: Path) -> None:
    """On paper each chapter begins on a page of its own, and no line runs out of it."""
    page = open_page(site / "spec/print.html", "desktop")
    page.emulate_media(media="print")
    assert page.locator("section > h1").count() == 7
    breaks = "each => getComputedStyle(each).breakBefore"
    assert page.locator("section > h1").nth(1).evaluate(breaks) == "page"
    assert not scrolls_sideways(page)


def paper_of_plot(page: Page) -> int:
    """How light the corner of the first plot is, from 0 to 255."""
    plot = page.locator("img[src*=bench_tree]").first
    plot.scroll_into_view_if_needed()
    shot = plot.screenshot(type="png")
    return int(page.evaluate(LIGHT, list(shot)))


LIGHT = """async (bytes) => {
  const picture = await createImageBitmap(new Blob([new Uint8Array(bytes)], {type: "image/png"}));
  const canvas = new OffscreenCanvas(picture.width, picture.height).getContext("2d");
  canvas.drawImage(picture, 0, 0);
  return canvas.getImageData(3, 3, 1, 1).data[1];
}"""
