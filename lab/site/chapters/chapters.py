"""All chapters of the document, in order, each as the Markdown of its page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from kvcanon import __version__
from kvcanon.lab.site.chapters.definition_chapter import definitions_chapter
from kvcanon.lab.site.chapters.law_chapter import history_chapter, laws_chapter
from kvcanon.lab.site.chapters.operations import operations_chapter
from kvcanon.lab.site.chapters.places import FOLDER, SpecNames
from kvcanon.lab.site.chapters.prose import UP
from kvcanon.lab.site.chapters.sections import Document
from kvcanon.lab.site.chapters.state import state_chapter
from kvcanon.lab.site.chapters.stores import stores_chapter
from kvcanon.lab.site.chapters.wire import wire_chapter
from kvcanon.lab.site.steps import Pictures
from kvcanon.spec.law import LAWS

Chapter = Callable[[Document], Iterator[str]]

ABOUT: Mapping[str, tuple[str, str]] = {
    "state": ("The state", "what a cache is at one moment: pages, nodes, slots, locks, copies"),
    "operations": ("The operations", "each call: its refusals, effects, laws and events"),
    "definitions": (
        "The definitions",
        "usable prefix, window, shortage, victims, hashes",
    ),
    "laws": ("The laws by class", "each law in a sentence: sound, serving, policy"),
    "wire": ("Events and the wire", "what routers hear, from which call, in which frames"),
    "stores": ("The stores", "what must hold of a store below the host: protocol, laws"),
    "history": ("Versions", "which version added a law, and which changed it"),
}
"""The title of each chapter, and what it has."""

ANCHORS = Path(__file__).with_name("anchors.txt")
"""The addresses of the document, which stay. `python -m kvcanon.lab.site --anchors` adds to it."""

_ANCHOR = re.compile(r"\{ #([\w.-]+) \}|<a id=\"([\w.-]+)\">")


def chapters(checkout: Path, names: SpecNames, pictures: Pictures) -> dict[str, str]:
    """The Markdown of every page of the document, by its name."""
    document = Document(checkout, names)
    made: Mapping[str, Chapter] = {
        "state": lambda each: state_chapter(each, pictures),
        "operations": operations_chapter,
        "definitions": definitions_chapter,
        "laws": laws_chapter,
        "wire": wire_chapter,
        "stores": stores_chapter,
        "history": history_chapter,
    }
    pages = {"index": _joined(_opening())}
    for name, parts in made.items():
        pages[name] = _joined(parts(document))
    return pages


def navigation() -> list[dict[str, str]]:
    """The pages of the document, as mkdocs lists them."""
    pages = [{title: f"{FOLDER}/{name}.md"} for name, (title, _) in ABOUT.items()]
    return [{"What it is": f"{FOLDER}/index.md"}, *pages]


def anchors_of(pages: Mapping[str, str]) -> list[str]:
    """The addresses of all anchors, as "state.html#Snapshot"; one that stands twice, too."""
    return [
        f"{name}.html#{found[1] or found[2]}"
        for name, text in pages.items()
        for found in _ANCHOR.finditer(text)
    ]


def anchors_text(known: str, now: list[str]) -> str:
    """The file of addresses with those that are new. None is ever taken out."""
    lines = [line for line in known.splitlines() if line]
    return "\n".join([*lines, *sorted(set(now) - set(lines))]) + "\n"


def _opening() -> Iterator[str]:
    yield "# The specification"
    yield (
        f"What a prefix KV cache must do: {len(LAWS)} laws over one model of its state. This is "
        f"version {__version__}. The chapters are made from the code of `spec/`, which runs: what "
        "is written here is what checks a cache."
    )
    rows = [f"| [{title}]({name}.md) | {words} |" for name, (title, words) in ABOUT.items()]
    yield "\n".join(["| chapter | what it has |", "|---|---|", *rows])
    yield (
        '<p>For paper, and to search it whole: <a href="print.html">all chapters on one page</a>. '
        f'For programs: <a href="{UP}/laws.json">laws.json</a>.</p>'
    )
    yield (
        f"Each law has [a page of its own]({UP}/laws/index.md), with its reason, where it was seen "
        f"broken, and pictures. [A prefix cache in ten minutes]({UP}/ten-minutes.md) is the gentle "
        f"way in; the [glossary]({UP}/glossary.md) puts the words beside those of SGLang, vLLM and "
        f"TensorRT-LLM. [Limits]({UP}/limits.md) says what a verdict is worth."
    )
    yield (
        "The addresses of chapters, of each name in them and of each law stay as they are, so that "
        "they can be cited."
    )


def _joined(parts: Iterator[str]) -> str:
    return "\n\n".join(part for part in parts if part.strip()) + "\n"
