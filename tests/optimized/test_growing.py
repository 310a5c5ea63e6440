"""A prompt that grows page by page: a call costs what is new, and not the nodes of its path."""

from __future__ import annotations

from array import array
from time import process_time_ns

from fast.nodes import made
from kvcanon.optimized import _core

DEPTH = 8_000
TRIES = 5


def fastest(core: _core.Nodes, pages: int) -> int:
    """The least time of some calls that insert a page below so many, and match it."""
    tokens, times = array("q", range(pages + TRIES)), []
    for number in range(1, TRIES + 1):
        key = tokens[: pages + number]
        begin = process_time_ns()
        core.insert(key, 0, pages + number - 1, 0, False, pages + number - 1)
        core.match(key)
        times.append(process_time_ns() - begin)
    return min(times)


def test_a_page_below_many_nodes_costs_as_much_as_below_one() -> None:
    """A page below 8,000 nodes of a page costs like one below a node of 8,000 pages."""
    _, short = made(slots=2 * DEPTH)
    short.insert(array("q", range(DEPTH)))
    _, long = made(slots=2 * DEPTH)
    for pages in range(1, DEPTH + 1):
        long.insert(array("q", range(pages)), 0, pages - 1, 0, False, pages - 1)
    assert len(long.all()) > DEPTH
    assert fastest(long, DEPTH) < 10 * fastest(short, DEPTH)


def test_a_prompt_that_matches_cut_is_walked_at_once() -> None:
    """A match of a prompt that earlier matches cut into 8,000 nodes costs like one of a node."""
    _, whole = made(slots=2 * DEPTH)
    whole.insert(array("q", range(DEPTH)))
    _, cut = made(slots=2 * DEPTH)
    cut.insert(array("q", range(DEPTH)))
    for pages in range(1, DEPTH):
        cut.match(array("q", range(pages)))
    assert len(cut.all()) == DEPTH + 1
    assert fastest(cut, DEPTH) < 10 * fastest(whole, DEPTH)


def test_uses_are_those_of_the_whole_path() -> None:
    """What a leaf knew of uses of its path is true of the nodes above, also when it has left."""
    core, nodes = made(slots=16)
    tree = _core.Tree(core)
    nodes.insert(array("q", [1, 2]), 0, 0, 0, False, 0, 1)
    nodes.insert(array("q", [1, 2, 3, 4]), 0, 2, 0, False, 2, 5)
    nodes.insert(array("q", [1, 2, 3, 4, 5]), 0, 4, 0, False, 0, 3)

    def uses() -> list[tuple[int, int, int]]:
        """Hits, priority and last use of each node but the root, the upper first."""
        return [(seen[7], seen[8], seen[10]) for seen in tree.nodes()[1:]]

    last = uses()[0][2]
    assert uses() == [(2, 5, last), (2, 5, last), (1, 3, last)]
    nodes.match(array("q", [1, 2, 3]))
    cut = uses()
    assert [each[:2] for each in cut] == [(2, 5), (2, 5), (2, 5), (1, 3)]
    assert cut[0][2] == cut[1][2] > last == cut[2][2] == cut[3][2]
    nodes.evict_step(0, 2)
    assert uses() == cut[:2]


def test_a_prompt_ends_anywhere_in_what_grew() -> None:
    """Prefixes of a prompt that grew, and prompts that leave it, are found where they end."""
    _, nodes = made(slots=256)
    for pages in range(1, 65):
        nodes.insert(array("q", range(pages)), 0, pages - 1)
    for pages in range(1, 65):
        whole = array("q", range(pages))
        leaving = whole + array("q", [1_000 + pages])
        assert nodes.match(whole)[:3] == (pages, pages, pages)
        assert nodes.match(leaving)[:3] == (pages, pages, pages)
        assert nodes.insert(leaving, 0, pages).walked_pages == pages
        assert nodes.insert(leaving).duplicates == [(0, pages + 1)]
