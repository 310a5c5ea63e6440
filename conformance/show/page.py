"""The page: a run in one HTML file, which needs no server and no other file.

The scripts in `web` are put together in the order of their names. The page has the packed run in
elements that the browser does not run; everything that is drawn is made of it by the scripts.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from kvcanon import __version__
from kvcanon.conformance.report.html_page import STYLE
from kvcanon.conformance.report.markup import Markup, joined, tag
from kvcanon.conformance.show.shown_run import ShownRun
from kvcanon.conformance.show.step_packer import all_parts, shortened
from kvcanon.spec.law import SITE

WEB = Path(__file__).with_name("web")

_ADDRESS = re.compile(rf"({re.escape(SITE)}[\w./-]*[\w/])")

WAIT = "The run is being unpacked."
NO_SCRIPT = "This page draws the run by a script, and scripts are switched off."


@cache
def show_script() -> Markup:
    """The script of pages with runs; it opens every run on its page."""
    parts = [path.read_text("utf-8") for path in sorted(WEB.glob("*.js"))]
    code = "\n".join(parts)
    return tag("script", Markup(f'(() => {{\n"use strict";\n{code}\n}})();'))


@cache
def show_style() -> Markup:
    """The style of runs; the page has the style of reports, too."""
    return Markup((WEB / "show.css").read_text("utf-8"))


def show_page(run: ShownRun) -> str:
    """A page for a run."""
    title = shortened(run.title)
    head = tag(
        "head",
        Markup('<meta charset="utf-8">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        tag("title", f"kvcanon show: {title}"),
        tag("style", Markup(STYLE.read_text(encoding="utf-8")), show_style()),
    )
    facts = [tag("div", shortened(f"{name}: {value}")) for name, value in run.facts]
    body = tag(
        "body",
        tag(
            "header",
            tag("p", "kvcanon show", class_="kicker"),
            tag("h1", title),
            tag("div", *facts, class_="show-facts"),
            *(tag("p", with_links(note)) for note in run.notes),
        ),
        tag("main", run_element(run)),
        tag("footer", f"Written by kvcanon {__version__}. Arrow keys go from step to step."),
        show_script(),
        class_="show-body",
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def run_element(run: ShownRun) -> Markup:
    """The element of a page in which the script shows a run."""
    return tag(
        "div",
        tag("p", WAIT, class_="show-wait"),
        tag("noscript", tag("p", NO_SCRIPT)),
        *(
            tag("script", Markup(text), type="text/plain", data_part=name)
            for name, text in all_parts(run).items()
        ),
        class_="show",
        data_show="",
    )


def embedded(run: ShownRun) -> Markup:
    """A run for a failure in a report, folded until it is opened."""
    summary = tag("summary", "Step through it, call by call")
    notes = [tag("p", with_links(note)) for note in run.notes]
    return tag("details", summary, *notes, run_element(run))


def with_links(text: str) -> Markup:
    """A text in which addresses of the book are links."""
    parts = _ADDRESS.split(text)
    return joined(*(tag("a", part, href=part) if at % 2 else part for at, part in enumerate(parts)))
