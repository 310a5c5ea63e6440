"""The chapter of the state: the states of a page, and the types that a snapshot is made of."""

from __future__ import annotations

from collections.abc import Iterator

from kvcanon.lab.site.chapters.page_states import WORDS, draw_page_states, moves_table
from kvcanon.lab.site.chapters.sections import Document, module_sections
from kvcanon.lab.site.steps import Pictures


def state_chapter(document: Document, pictures: Pictures) -> Iterator[str]:
    """The parts of the chapter."""
    yield "# The state"
    yield (
        "A cache is a tree of pages, and pools of slots. A [`Snapshot`](#Snapshot) has all of it "
        "as one value: the nodes, what each has on which medium, locks, free slots, copies in "
        "flight, and the events that nobody took yet. The laws look at snapshots, and at steps "
        "between two."
    )
    yield "## The states of a page { #states-of-a-page }"
    yield (
        "These are the states of a page's *full* data, and the calls that move it. Window data and "
        "mamba states of the same page move along, or leave earlier; they are never where the "
        "full data of the page is not."
    )
    drawn = pictures.add("page-states", draw_page_states())
    yield f'<figure class="kv-figure">{drawn}</figure>'
    rows = [f"| *{state}* | {words} |" for state, words in WORDS.items()]
    yield "\n".join(["| state | what it is |", "|---|---|", *rows])
    yield moves_table()
    yield (
        "One call may make several moves: under `write_back` an `evict` copies its victims, waits, "
        "and frees the device slots, so that a page goes from *tree* by *backing* and *both* to "
        "*host*. `reset` makes every page of the tree free. What is locked stays where it is, but "
        "a lock does not keep a page from being copied."
    )
    for module in document.names.modules_of("state"):
        yield from module_sections(module, document, with_code=False)
