"""Hooks of mkdocs: generated pages in the navigation, words, pictures, and the check of links.

Pictures are put into pages after the search index is made, which would take their text for the
page's.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, cast

from mkdocs.exceptions import PluginError

from kvcanon.lab.site.freshness import BUILT, SOURCES
from kvcanon.lab.site.glossary_links import linked
from kvcanon.lab.site.law_links import law_ids, with_law_links
from kvcanon.lab.site.site_links import broken_links

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

_PLACE = re.compile(r'<span data-kv-picture="([^"]+)"></span>')

_EMPTY_HEAD = re.compile(r"<th(?: style=\"[^\"]*\")?></th>")
_SEARCH = '<div class="md-search" data-md-component="search" role="dialog"'
"""The theme gives its dialog no name."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the chapters and the pages of the laws into the navigation."""
    parts = json.loads((_folder(config) / "nav.json").read_text("utf-8"))
    config.nav = [
        parts.get(each, each) if isinstance(each, str) else each for each in config.nav or ()
    ]
    return config


def on_page_content(html: str, page: Page, config: MkDocsConfig, **_: object) -> str:
    """Link the words of the glossary, and the ids of laws."""
    html = linked(html, page.file.src_uri, _terms(_folder(config)))
    return with_law_links(html, page.file.src_uri, _laws(Path(config.docs_dir)))


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:  # noqa: ARG001
    """Put the pictures of a page into it."""
    drawn = _pictures(_folder(config))
    output = output.replace(_SEARCH, f'{_SEARCH} aria-label="Search"')
    output = _EMPTY_HEAD.sub("<td></td>", output)
    return _PLACE.sub(lambda place: drawn[place[1]], output)


def on_post_build(config: MkDocsConfig) -> None:
    """Refuse a site with a broken link, and note that the others are built. Raises: PluginError."""
    wrong = broken_links(Path(config.site_dir))
    if wrong:
        raise PluginError("\n".join([f"{len(wrong)} links are broken:", *wrong[:40]]))
    shutil.copy(_folder(config) / SOURCES, _folder(config) / BUILT)


def _folder(config: MkDocsConfig) -> Path:
    return Path(config.docs_dir).parent


@cache
def _pictures(folder: Path) -> Mapping[str, str]:
    return cast("Mapping[str, str]", json.loads((folder / "pictures.json").read_text("utf-8")))


@cache
def _laws(pages: Path) -> frozenset[str]:
    return law_ids(pages)


@cache
def _terms(folder: Path) -> Mapping[str, str]:
    return cast("Mapping[str, str]", json.loads((folder / "terms.json").read_text("utf-8")))
