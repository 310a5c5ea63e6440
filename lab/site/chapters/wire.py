"""The chapter of the events: what they carry, which call emits them, and the frames they are in."""

from __future__ import annotations

from collections.abc import Iterator

from kvcanon.lab.site.chapters.prose import UP, in_line
from kvcanon.lab.site.chapters.sections import Document, module_sections
from kvcanon.spec.laws.emission import EMISSIONS, HEADS, cells
from kvcanon.spec.wire import WIRE_LAWS

EVENTS = "kvcanon.spec.events"


def wire_chapter(document: Document) -> Iterator[str]:
    """The parts of the chapter."""
    yield "# Events and the wire"
    yield (
        "A cache emits events for the routers of requests. The laws EVENT-1 to EVENT-14 are about "
        "the events themselves, the rules WIRE-1 to WIRE-5 about the frames in which they travel. "
        f"[Events of each operation]({UP}/events.md) explains the table below; [events of running "
        f"engines]({UP}/live.md) reads them from a socket."
    )
    yield "## Which call emits what { #emissions }"
    yield f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}\n{_emissions()}"
    yield "## Rules of frames { #rules-of-frames }"
    rows = [
        f'| <a id="{each.law_id}"></a>{each.law_id} | {each.statement} | {each.why} |'
        for each in WIRE_LAWS.values()
    ]
    yield "\n".join(["| rule | what holds | why |", "|---|---|---|", *rows])
    yield in_line(
        "The 64-bit id of a page on the wire is `wire_id`, the first eight bytes of its hash; "
        "`page_hash` and `namespace_seed` are the hash itself.",
        document.names,
        "kvcanon.spec.hashing",
    )
    for module in document.names.modules_of("wire"):
        yield from module_sections(module, document, with_code=False)


def _emissions() -> str:
    return "\n".join(f"| {' | '.join(cells(row))} |" for row in EMISSIONS)
