"""Links the ids of laws in sentences and tables to the pages of the laws."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Container
from pathlib import Path

from kvcanon.lab.site.glossary_links import in_prose

LEFT_OUT = ("source/", "laws/index.md")
"""Pages that link them already, or that are code."""

_ID = re.compile(r"\b[A-Z]+-\d+\b")


def law_ids(pages: Path) -> frozenset[str]:
    """The ids of the laws that have a page."""
    return frozenset(each.parent.name for each in (pages / "laws").glob("*/index.md"))


def with_law_links(html: str, page: str, laws: Container[str]) -> str:
    """The content of a page with each id of another law as a link to its page.

    `page` is its file, as "laws/LOCK-1/index.md".
    """
    if page.startswith(LEFT_OUT):
        return html
    here = posixpath.dirname(page) or "."

    def link(found: re.Match[str]) -> str:
        there = f"laws/{found[0]}"
        if found[0] not in laws or here == there:
            return found[0]
        return f'<a href="{posixpath.relpath(there, here)}/index.html">{found[0]}</a>'

    return in_prose(html, lambda text: _ID.sub(link, text))
