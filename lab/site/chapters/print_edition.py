"""The whole specification as one HTML file, for paper: it needs no other file and no script."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from pathlib import Path

from markdown import Markdown

from kvcanon import __version__
from kvcanon.conformance.report.markup import Markup, tag
from kvcanon.lab.site.chapters.chapters import ABOUT
from kvcanon.lab.site.chapters.places import FOLDER
from kvcanon.spec.law import SITE

STYLE = Path(__file__).with_name("print.css")
EXTENSIONS = ["tables", "attr_list", "md_in_html", "pymdownx.superfences", "pymdownx.betterem"]

_LINK = re.compile(r'href="(?P<target>[^"]+)"')
_PICTURE = re.compile(r'<span data-kv-picture="([^"]+)"></span>')
_HEADING = re.compile(r'<h2 id="([^"]+)">(.+?)</h2>')


def print_edition(pages: Mapping[str, str], pictures: Mapping[str, str], styles: str) -> str:
    """The document as one page; `styles` are those of its pictures."""
    chapters = {name: _chapter(name, pages[name], pictures) for name in ABOUT}
    contents = [_contents(name, chapters[name]) for name in ABOUT]
    title = f"kvcanon {__version__}: the specification of prefix KV caches"
    head = tag(
        "head",
        Markup('<meta charset="utf-8">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        tag("title", title),
        tag("style", Markup(STYLE.read_text("utf-8")), Markup(styles)),
    )
    body = tag(
        "body",
        tag(
            "header",
            tag("h1", title),
            tag(
                "p", "With links: ", tag("a", f"{SITE}{FOLDER}/", href=f"{SITE}{FOLDER}/index.html")
            ),
        ),
        tag("nav", tag("h2", "Contents"), *contents, aria_label="Contents"),
        tag("main", *chapters.values()),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def _chapter(name: str, text: str, pictures: Mapping[str, str]) -> Markup:
    html = Markdown(extensions=EXTENSIONS).convert(text)
    html = _PICTURE.sub(lambda place: pictures[place[1]], html)
    html = html.replace("<h1>", f'<h1 id="chapter-{name}">', 1)
    html = _LINK.sub(lambda link: f'href="{escape(_target(link["target"]))}"', html)
    return tag("section", Markup(html))


def _target(target: str) -> str:
    """Where a link of a chapter leads from the one page: within it, or to the site."""
    if "://" in target or target.startswith("#"):
        return target
    path, mark, anchor = target.partition("#")
    name = path.removeprefix(f"../{FOLDER}/").removesuffix(".html").removesuffix(".md")
    if name in ABOUT:
        return f"#{anchor or f'chapter-{name}'}"
    path = re.sub(r"\.md$", ".html", path)
    base = (
        f"{SITE}{path.removeprefix('../')}" if path.startswith("../") else f"{SITE}{FOLDER}/{path}"
    )
    return f"{base}{mark}{anchor}"


def _contents(name: str, chapter: str) -> Markup:
    items = [
        tag("li", tag("a", Markup(words), href=f"#{anchor}"))
        for anchor, words in _HEADING.findall(chapter)
    ]
    title = tag("a", ABOUT[name][0], href=f"#chapter-{name}")
    return tag("div", tag("p", title), tag("ul", *items))
