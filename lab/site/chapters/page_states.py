"""The states of a page's full data, and the calls that move it from one to the next, as a picture.

`state_of` reads the state of a page from a snapshot; a test plays cases on the plain cache, and
finds each move that is drawn, and no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from attrs import frozen

from kvcanon.conformance.report.markup import Markup, tag
from kvcanon.spec.snapshot import ComponentState

WIDTH, HEIGHT = 652, 428
BOX_WIDTH, BOX_HEIGHT = 140, 48
TITLE = "The states of a page, and the calls that move it"


class PageState(StrEnum):
    """Where a page is, by its full data; the values are the names in the picture."""

    FREE = "free"
    HELD = "held"
    TREE = "tree"
    BACKING = "backing"
    BOTH = "both"
    HOST = "host"
    LOADING = "loading"
    STORAGE = "storage"


WORDS: Mapping[PageState, str] = {
    PageState.FREE: "The page is in no slot: the cache does not know it, and its slots are free.",
    PageState.HELD: "A request holds a device slot for it; it is not in the tree.",
    PageState.TREE: "It is in the tree, with a device slot alone.",
    PageState.BACKING: "It is on the device, and a copy to the host is in flight: a host slot is "
    "owned already, and has no data yet.",
    PageState.BOTH: "It is on the device and on the host.",
    PageState.HOST: "It is on the host alone.",
    PageState.LOADING: "It is on the host, and a copy to the device is in flight: a device slot is "
    "owned already, and has no data yet.",
    PageState.STORAGE: "A store below the host has it (DISK, EXTERNAL). That is no state of the "
    "cache, which knows nothing of the page before `insert_host`.",
}


@frozen
class DrawnMove:
    """A step of a page from one state to another."""

    start: PageState
    end: PageState
    calls: tuple[str, ...]
    """The methods that do it."""
    when: str
    path: str
    """The line in the picture, from its start to its end."""
    label: tuple[int, int]
    """Where the words of the line begin."""
    words: str


PLACES: Mapping[PageState, tuple[int, int]] = {
    PageState.FREE: (10, 42), PageState.HELD: (216, 42), PageState.TREE: (422, 42),
    PageState.LOADING: (216, 194), PageState.BACKING: (422, 194),
    PageState.STORAGE: (10, 346), PageState.HOST: (216, 346), PageState.BOTH: (422, 346),
}  # fmt: skip
"""The corner of each box."""

SETTLES = ("settle", "poll", "flush")
EVICTS = ("evict", "load_back")
"""A load-back evicts, too, where slots are missing for what it loads."""

MOVES: tuple[DrawnMove, ...] = (
    DrawnMove(
        PageState.FREE, PageState.HELD, ("allocate",), "", "M150 56H216", (160, 51), "allocate"
    ),
    DrawnMove(
        PageState.HELD, PageState.FREE, ("free", "insert"),
        "`insert` frees the slot of a page that the tree has on the device already",
        "M216 76H150", (173, 90), "free",
    ),
    DrawnMove(PageState.HELD, PageState.TREE, ("insert",), "", "M356 66H422", (373, 61), "insert"),
    DrawnMove(
        PageState.HELD, PageState.BOTH, ("insert",),
        "the tree has the page on the host alone, and takes the request's slot",
        "M335 90C389 190 368 290 422 352", (244, 140), "insert, was on host",
    ),
    DrawnMove(
        PageState.TREE, PageState.FREE, EVICTS, "the page has no host copy and gets none",
        "M474 42C448 8 112 8 80 42", (229, 12), "evict: it leaves the cache",
    ),
    DrawnMove(
        PageState.TREE, PageState.BACKING, ("insert", "evict", "load_back"),
        "`insert` under write-through, when the page has enough hits; an eviction under "
        "`write_back`, which then waits for the copy",
        "M480 90V194", (485, 128), "copy begins",
    ),
    DrawnMove(
        PageState.BACKING, PageState.TREE, SETTLES,
        "the copy failed or was cancelled", "M452 194V90", (419, 160), "failed",
    ),
    DrawnMove(
        PageState.BACKING, PageState.BOTH, (*SETTLES, "evict", "load_back"),
        "the copy is done: `store(CPU)` is emitted", "M492 242V346", (498, 298), "settled",
    ),
    DrawnMove(
        PageState.BOTH, PageState.HOST, EVICTS, "`remove(GPU)` is emitted", "M422 384H356",
        (375, 398), "evict",
    ),
    DrawnMove(
        PageState.BOTH, PageState.TREE, ("evict_host", "evict", "load_back", "insert_host"),
        "under `write_back` the host copy of a page that is on the device too may leave: "
        "`evict_host`, or a call that needs host slots",
        "M562 384C652 320 652 120 562 76", (592, 150), "evict_host",
    ),
    DrawnMove(
        PageState.HOST, PageState.LOADING, ("load_back",), "", "M265 346V242", (203, 298),
        "load_back",
    ),
    DrawnMove(
        PageState.LOADING, PageState.HOST, SETTLES, "the copy failed or was cancelled",
        "M296 242V346", (302, 284), "failed",
    ),
    DrawnMove(
        PageState.LOADING, PageState.BOTH, SETTLES,
        "the copy is done: `store(GPU)` is emitted. By profile, the host copy is then given up",
        "M343 242C361 300 386 340 422 364", (349, 330), "settled",
    ),
    DrawnMove(
        PageState.HOST, PageState.FREE, ("evict_host", "insert", "insert_host", *EVICTS),
        "`evict_host`, or a call that needs host slots, when nothing is below the page",
        "M216 356C159 330 80 220 80 90", (75, 230), "evict_host",
    ),
    DrawnMove(
        PageState.STORAGE, PageState.HOST, ("insert_host",), "the page is not in the tree yet",
        "M150 376H216", (150, 392), "insert_host",
    ),
    DrawnMove(
        PageState.TREE, PageState.BOTH, ("insert_host",),
        "a page on the device alone is refilled: it gets a host copy from the fetched bytes",
        "M562 60C591 130 591 290 562 356", (556, 278), "insert_host",
    ),
)  # fmt: skip


def state_of(data: ComponentState) -> PageState:
    """The state of the pages of a node, by its full data."""
    if data.device is None:
        return PageState.FREE if data.host is None else PageState.HOST
    if data.loading is not None:
        return PageState.LOADING
    if data.host is None:
        return PageState.TREE
    return PageState.BACKING if data.backing is not None else PageState.BOTH


def draw_page_states(styles: str = "") -> Markup:
    """Draw the boxes and the moves; `styles` are CSS for a picture of its own."""
    told = "; ".join(f"{m.start} to {m.end}: {', '.join(m.calls)}" for m in MOVES)
    return tag(
        "svg",
        tag("title", TITLE),
        tag("desc", f"{told}."),
        *([tag("style", Markup(styles))] if styles else []),
        _arrow_head(),
        *(_line(move) for move in MOVES),
        *(_box(state) for state in PageState),
        *(_label(move) for move in MOVES),
        tag(
            "text", "reset: every page of the tree becomes free", x="10", y="420", class_="kv-note"
        ),
        xmlns="http://www.w3.org/2000/svg",
        class_="kv",
        role="img",
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        width=str(WIDTH),
        height=str(HEIGHT),
    )


def _arrow_head() -> Markup:
    head = tag("path", d="M0 0L8 4L0 8z", class_="kv-arrow")
    marker = tag(
        "marker", head, id="kv-arrow-head", viewBox="0 0 8 8", refX="7", refY="4",
        markerWidth="8", markerHeight="8", markerUnits="userSpaceOnUse", orient="auto",
    )  # fmt: skip
    return tag("defs", marker)


def _line(move: DrawnMove) -> Markup:
    return tag("path", d=move.path, class_="kv-link", marker_end="url(#kv-arrow-head)")


def _label(move: DrawnMove) -> Markup:
    x, y = move.label
    return tag("text", move.words, x=str(x), y=str(y), class_="kv-note kv-over")


_SHORT: Mapping[PageState, str] = {
    PageState.FREE: "not in the cache", PageState.HELD: "a request has the slot",
    PageState.TREE: "on the device", PageState.BACKING: "device; copy to host",
    PageState.BOTH: "on device and host", PageState.HOST: "on the host alone",
    PageState.LOADING: "host; copy to device", PageState.STORAGE: "a store has it",
}  # fmt: skip


def _box(state: PageState) -> Markup:
    left, top = PLACES[state]
    dashes = {"stroke_dasharray": "4 3"} if state is PageState.STORAGE else {}
    frame = tag(
        "rect", x=str(left), y=str(top), width=str(BOX_WIDTH), height=str(BOX_HEIGHT), rx="5",
        class_="kv-node", **dashes,
    )  # fmt: skip
    return tag(
        "g",
        frame,
        tag("text", state.value, x=str(left + 10), y=str(top + 20), class_="kv-head"),
        tag("text", _SHORT[state], x=str(left + 10), y=str(top + 37), class_="kv-label"),
    )


def moves_table() -> str:
    """The moves in words, as Markdown."""
    rows = ["| from | to | by | when |", "|---|---|---|---|"]
    for move in MOVES:
        calls = ", ".join(f"[`{call}`](operations.md#op-{call})" for call in move.calls)
        rows.append(f"| *{move.start}* | *{move.end}* | {calls} | {move.when} |")
    return "\n".join(rows)
