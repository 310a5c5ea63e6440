"""Draws which tree of the checkout imports which: the picture of docs/architecture.md."""

from __future__ import annotations

from attrs import frozen

from kvcanon.conformance.report.markup import Markup, tag

TITLE = "Which tree imports which"
WIDTH, HEIGHT = 640, 236


@frozen
class TreeBox:
    """One tree, and where it is drawn."""

    name: str
    words: str
    left: int
    top: int

    @property
    def middle(self) -> int:
        """Halfway down its side."""
        return self.top + 24


BOXES = {
    each.name: each
    for each in (
        TreeBox("lab/", "judges the judge", 8, 8),
        TreeBox("conformance/", "the judge", 8, 94),
        TreeBox("reference/", "a plain cache", 240, 8),
        TreeBox("live/", "for watch, audit and probe", 240, 72),
        TreeBox("optimized/", "a fast cache: C++ and torch", 240, 136),
        TreeBox("spec/", "types, oracle functions, laws", 448, 72),
        TreeBox("your cache", "or SGLang's, vLLM's, ...", 8, 182),
    )
}
IMPORTS = (
    ("conformance/", "reference/"),
    ("conformance/", "live/"),
    ("reference/", "spec/"),
    ("live/", "spec/"),
    ("optimized/", "spec/"),
)
BOX_WIDTH, BOX_HEIGHT = 184, 46


def draw_map(styles: str) -> Markup:
    """Draw the boxes, and an arrow for each import."""
    arrows = [_arrow(BOXES[one], BOXES[other]) for one, other in IMPORTS]
    below = tag("path", d="M100 140v42", class_="kv-link", stroke_dasharray="4 3")
    above = tag("path", d="M100 54V92M96 85L100 92L104 85", class_="kv-link")
    says = "Arrows are imports; conformance/ imports spec/, too, and lab/ imports all."
    return tag(
        "svg",
        tag("title", TITLE),
        tag(
            "desc",
            "reference/, live/, optimized/ and conformance/ import spec/. conformance/ imports "
            "reference/ too, and live/ for watch, audit and probe. It judges optimized/ or any "
            "other cache by an adapter. lab/ imports all of them.",
        ),
        tag("style", Markup(styles)),
        *arrows,
        above,
        below,
        tag("text", "by an adapter", x="108", y="164", class_="kv-note"),
        *(_box(each) for each in BOXES.values()),
        tag("text", says, x="240", y="226", class_="kv-note"),
        xmlns="http://www.w3.org/2000/svg",
        class_="kv",
        role="img",
        viewBox=f"0 0 {WIDTH + 40} {HEIGHT}",
        width=str(WIDTH + 40),
        height=str(HEIGHT),
    )


def _box(box: TreeBox) -> Markup:
    left = str(box.left + 10)
    return tag(
        "g",
        tag(
            "rect",
            x=str(box.left),
            y=str(box.top),
            width=str(BOX_WIDTH),
            height=str(BOX_HEIGHT),
            rx="5",
            class_="kv-node",
        ),
        tag("text", box.name, x=left, y=str(box.top + 19), class_="kv-head"),
        tag("text", box.words, x=left, y=str(box.top + 36), class_="kv-label"),
    )


def _arrow(one: TreeBox, other: TreeBox) -> Markup:
    x1, y1, x2, y2 = one.left + BOX_WIDTH, one.middle, other.left - 2, other.middle
    middle = (x1 + x2) // 2
    head = f"M{x2 - 7} {y2 - 4}L{x2} {y2}L{x2 - 7} {y2 + 4}"
    path = f"M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}{head}"
    return tag("path", d=path, class_="kv-link")
