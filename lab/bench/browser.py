"""A headless browser, to measure and to test pages: the system's Chromium, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kvcanon.conformance.errors import UsageError

if TYPE_CHECKING:
    from playwright.sync_api import Browser

VARIABLE = "KVCANON_BROWSER"
"""The variable of the environment that names the browser's program."""
PROGRAMS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "microsoft-edge",
)


def find_browser() -> str:
    """The program of a browser. Raises: UsageError: there is none."""
    named = os.environ.get(VARIABLE)
    if named:
        found = shutil.which(named)
        if found is None:
            raise UsageError(f"{VARIABLE} is {named!r}, which is no program")
        return found
    for program in PROGRAMS:
        found = shutil.which(program)
        if found is not None:
            return found
    raise UsageError(
        f"no browser was found (looked for {', '.join(PROGRAMS)}); install Chromium, as by "
        f"`apt-get install chromium`, or name one in {VARIABLE}"
    )


@contextmanager
def headless_browser() -> Iterator[Browser]:
    """Start a headless browser, and end it. Raises: UsageError: there is none, or no Playwright."""
    program = find_browser()
    try:
        # An extra that only those need who measure or test pages.
        from playwright.sync_api import Error, sync_playwright  # noqa: PLC0415
    except ImportError:
        raise UsageError(
            "playwright is not installed, which drives the browser; "
            "run `pip install 'kvcanon[browser]'`"
        ) from None
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=program)
        except Error as error:
            first = str(error).splitlines()[0]
            raise UsageError(f"the browser {program} does not start: {first}") from error
        try:
            yield browser
        finally:
            browser.close()
