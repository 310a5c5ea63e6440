"""Links and paths of the README, the docs and CONTRIBUTING lead to files that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from paths import DOCS, ROOT

PAGES = sorted(
    [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *DOCS.glob("*.md"),
        *DOCS.glob("findings/*/*.md"),
    ]
)
LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")
HEADING = re.compile(r"^#+ (?P<title>.+)$", re.MULTILINE)
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
TREES = "spec|reference|optimized|live|conformance|lab|tests|docs|src"
PATH = re.compile(
    rf"(?<![\w/.:-])(?:{TREES})(?:/[\w.-]+)*/[\w.-]*[a-z][\w-]*\.(?:py|cpp|hpp|md|toml|json|mjs)\b"
)
"""A file named by its whole path, in prose, in a table or in a drawing."""

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))


def anchor_of(title: str) -> str:
    """The anchor that GitHub gives a heading."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "").lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def anchors_of(page: Path) -> set[str]:
    """The anchors of all headings of a page."""
    text = FENCE.sub("", page.read_text("utf-8"))
    return {anchor_of(match["title"]) for match in HEADING.finditer(text)}


def broken_links(page: Path) -> list[str]:
    """The relative links of a page that lead to no file, or to no heading of it."""
    broken = []
    for match in LINK.finditer(FENCE.sub("", page.read_text("utf-8"))):
        target, _, anchor = match["target"].partition("#")
        if "://" in target:
            continue
        path = (page.parent / target) if target else page
        if not path.exists() or (anchor and anchor not in anchors_of(path)):
            broken.append(match["target"])
    return broken


@each_page
def test_links_resolve(page: Path) -> None:
    """Each relative link leads to a file, and each anchor to a heading."""
    assert broken_links(page) == []


@each_page
def test_named_files_exist(page: Path) -> None:
    """Each file that a page names by its whole path exists."""
    named = {match[0] for match in PATH.finditer(page.read_text("utf-8"))}
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_broken_links_are_found(tmp_path: Path) -> None:
    """A link to a missing file or heading is found; a link to another site is left alone."""
    page = tmp_path / "page.md"
    page.write_text(
        "# One `two`\n[a](#one-two) [b](gone.md) [c](page.md#gone) [d](https://example.org/x)\n"
    )
    assert broken_links(page) == ["gone.md", "page.md#gone"]
