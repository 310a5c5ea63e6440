"""A headless browser for the tests of pages, started once; pages that note what goes wrong in them.

Where there is no browser these tests fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize

from kvcanon.conformance.errors import UsageError
from kvcanon.lab.bench.browser import headless_browser
from opened_pages import OpenPage
from shown_pages import write_page

LOOPBACK = "http://127.0.0.1:"
SIZES = {
    "phone": ViewportSize(width=360, height=740),
    "enlarged": ViewportSize(width=320, height=256),
    "desktop": ViewportSize(width=1280, height=800),
    "tall phone": ViewportSize(width=390, height=844),
    "wide": ViewportSize(width=1440, height=900),
}


@contextmanager
def _started() -> Iterator[Browser]:
    try:
        with headless_browser() as browser:
            yield browser
    except UsageError as missing:
        pytest.fail(str(missing))


@pytest.fixture(scope="session", name="browser")
def browser_of_all() -> Iterator[Browser]:
    """The browser of all tests."""
    with _started() as started:
        yield started


@pytest.fixture(scope="session")
def pages_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the pages that tests write."""
    return tmp_path_factory.mktemp("pages")


@pytest.fixture
def open_page(browser: Browser, pages_folder: Path) -> Iterator[OpenPage]:
    """Opens a page: one of `shown_pages.PAGES` by its name, a file, or an address on this machine.

    At the end of the test there must have been no error in its console and no request of anything
    but files and that server.
    """
    contexts, wrong = list[BrowserContext](), list[str]()
    own = ("file:", "data:", "blob:", LOOPBACK)

    def opened(
        page: str | Path,
        size: str = "desktop",
        scheme: Literal["light", "dark"] = "light",
        at: str = "",
    ) -> Page:
        if isinstance(page, str) and not page.startswith(own):
            page = write_page(page, pages_folder)
        address = page.as_uri() if isinstance(page, Path) else page
        context = browser.new_context(
            viewport=SIZES[size],
            color_scheme=scheme,
            reduced_motion="reduce",
        )
        contexts.append(context)
        tab = context.new_page()
        tab.set_default_timeout(20_000)
        tab.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        tab.on(
            "console",
            lambda message: (
                wrong.append(f"console: {message.text}")
                if message.type in ("error", "warning")
                else None
            ),
        )
        tab.on(
            "request",
            lambda request: (
                None if request.url.startswith(own) else wrong.append(f"asked {request.url}")
            ),
        )
        tab.goto(address + at)
        return tab

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []
