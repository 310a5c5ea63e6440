"""The chapter of the stores: the laws of what keeps pages below the host, and its protocol."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from kvcanon.lab.site.chapters.places import anchor_of
from kvcanon.lab.site.chapters.prose import UP, sentence
from kvcanon.lab.site.chapters.sections import Document, module_sections
from kvcanon.spec.stores import STORE_LAWS
from kvcanon.spec.stores.store_law import StoreLaw


def stores_chapter(document: Document) -> Iterator[str]:
    """The parts of the chapter."""
    yield "# The stores"
    yield (
        "A store keeps pages on a disk or on another machine while a cache and its process come "
        "and go. It may lose a page and say so; it never gives bytes that nobody put there under "
        f"that name. Its laws are a family of their own; [the page about stores]({UP}/stores.md) "
        "says how a store is judged."
    )
    yield "## Laws of stores { #laws-of-stores }"
    rows = [_row(law, document) for law in STORE_LAWS.values()]
    yield "\n".join(["| law | class | what holds | exercised by |", "|---|---|---|---|", *rows])
    for module in document.names.modules_of("stores"):
        yield from module_sections(module, document, with_code=False)


def _row(law: StoreLaw, document: Document) -> str:
    check = inspect.unwrap(law.check)
    module = check.__module__
    said = sentence(law.statement, document.names, module)
    anchor = f'<a id="{law.law_id}"></a>'
    link = f"[{law.law_id}](#{anchor_of(f'{module}.{check.__name__}')})"
    premise = law.premise.replace("|", "\\|")
    return f"| {anchor}{link} | {law.law_class.value} | {said} | {premise} |"
