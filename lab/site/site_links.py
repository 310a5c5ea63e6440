"""Checks the built site: each link leads to a file and its anchor, and nothing is from outside.

mkdocs checks the links of Markdown. This checks what is in the pages in the end: links in pictures
and tables, anchors of lines of code, scripts, styles and images.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

LOADS = {("script", "src"), ("link", "href"), ("img", "src"), ("iframe", "src"), ("source", "src")}
"""What a browser fetches by itself; `link` also says things that it does not fetch."""
SAYS = {"canonical", "next", "prev"}


class LinkReader(HTMLParser):
    """Reads the anchors of a page, its links, and what it loads."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what an element is called, and where it leads."""
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        says = tag == "link" and bool(SAYS & set(given.get("rel", "").split()))
        for name, value in given.items():
            if (tag, name) in LOADS and not says:
                self.loads.append(value)
            elif tag == "a" and name == "href":
                self.links.append(value)


def broken_links(site: Path) -> list[str]:
    """What is wrong with the links of a built site, a line each."""
    pages: dict[str, LinkReader] = {}
    for path in sorted(site.rglob("*.html")):
        reader = LinkReader()
        reader.feed(path.read_text("utf-8"))
        pages[path.relative_to(site).as_posix()] = reader
    return [wrong for page in pages for wrong in _broken_on(page, pages, site)]


def _broken_on(page: str, pages: dict[str, LinkReader], site: Path) -> Iterator[str]:
    reader = pages[page]
    for url in reader.loads:
        if "://" in url or url.startswith("//"):
            yield f"{page} loads {url} from outside"
    if page == "404.html":
        return  # It may be shown at any address, so that its links begin with that of the site.
    for url in [*reader.links, *(each for each in reader.loads if "://" not in each)]:
        target, _, anchor = url.partition("#")
        if "://" in target or target.startswith(("mailto:", "data:", "javascript:")):
            continue
        there = posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(target)))
        there = page if not target else there
        there = posixpath.join(there, "index.html") if (site / there).is_dir() else there
        if not (site / there).exists():
            yield f"{page} links to {url}, which is not there"
        elif anchor and there in pages and unquote(anchor) not in pages[there].anchors:
            yield f"{page} links to {url}, and {there} has no such anchor"
