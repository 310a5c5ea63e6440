"""Looks into a radix tree find what is there, and change nothing."""

from __future__ import annotations

from time import process_time

import pytest

from kvcanon.conformance.adapter_parts.tree_view import LastMatch, TreeView
from kvcanon.spec.errors import BadArgument, PrefixNotCached
from kvcanon.spec.types import Key, make_key

Node = dict[str, list[object]]


def node(tokens: list[int], indices: list[int], *children: Node) -> Node:
    """A node as somebody's cache may have it."""
    return {"tokens": [*tokens], "indices": [*indices], "children": [*children]}


TREE = node(
    [],
    [],
    node(
        [1, 2, 3, 4],
        [10, 11, 12, 13],
        node([5, 6], [20, 21]),
        node([5, 7], [22, 23]),
    ),
    node([1, 9, 3, 4], [30, 31, 32, 33]),
)
LEFT = TREE["children"][0]


def view_of(page_size: int) -> TreeView[Node]:
    """How to read such nodes."""
    return TreeView(
        page_size,
        children=lambda each: each["children"],
        tokens=lambda each: each["tokens"],
        indices=lambda each: each["indices"],
    )


@pytest.mark.parametrize(
    ("tokens", "page_size", "indices", "inside"),
    [
        ([], 2, [], False),
        ([8, 8], 2, [], False),
        ([1, 2, 3, 4], 2, [10, 11, 12, 13], False),
        ([1, 2], 2, [10, 11], True),
        ([1, 2, 3, 8], 2, [10, 11], True),
        ([1, 2, 3, 8], 1, [10, 11, 12], True),
        ([1, 9, 3, 4], 2, [30, 31, 32, 33], False),
        ([1, 2, 3, 4, 5, 7], 2, [10, 11, 12, 13, 22, 23], False),
        ([1, 2, 3, 4, 5, 8, 9, 9], 2, [10, 11, 12, 13], False),
        ([1, 2, 3, 4, 5, 8], 1, [10, 11, 12, 13, 20], True),
    ],
)
def test_longest_prefix_is_found(
    tokens: list[int], page_size: int, indices: list[int], inside: bool
) -> None:
    """A look finds whole pages only, takes the child that shares most, and says where it ends."""
    found = view_of(page_size).find(TREE, make_key(tokens, page_size))
    assert list(found.indices) == indices
    assert found.pages == len(indices) // page_size
    assert found.inside is inside


def test_a_long_path_of_short_nodes_takes_little_time() -> None:
    """A look at 20,000 nodes of one page each does not copy the rest of the key at each."""
    size, pages = 16, 20_000
    numbers = list(range(size * pages))
    path: list[Node] = []
    for first in reversed(range(0, len(numbers), size)):
        part = numbers[first : first + size]
        path = [node(part, part, *path)]
    began = process_time()
    found = view_of(size).find(node([], [], *path), make_key(numbers, size))
    assert found.pages == pages
    assert process_time() - began < 1.5


def test_node_at_the_end_of_a_key() -> None:
    """A key that ends with a node has a handle; the empty key has the root."""
    view = view_of(2)
    assert view.end_of(TREE, Key(())) is TREE
    assert view.end_of(TREE, make_key([1, 2, 3, 4], 2)) is LEFT
    with pytest.raises(BadArgument, match="inside a node"):
        view.end_of(TREE, make_key([1, 2], 2))
    with pytest.raises(PrefixNotCached, match="3 pages of the key are needed"):
        view.end_of(TREE, make_key([1, 2, 3, 4, 9, 9], 2))
    with pytest.raises(PrefixNotCached):
        view.end_of(TREE, make_key([1, 2, 8, 8], 2))


def test_indices_of_a_cached_key() -> None:
    """The indices of a prefix are there even where it ends inside a node."""
    view = view_of(2)
    assert view.indices_of(TREE, make_key([1, 2], 2)) == (10, 11)
    assert view.indices_of(TREE, Key(())) == ()
    with pytest.raises(PrefixNotCached):
        view.indices_of(TREE, make_key([1, 2, 8, 8], 2))


def test_last_match_serves_what_it_found_alone() -> None:
    """The handle of a match is given for the prefix that it found, until it is forgotten."""
    key, last = make_key([1, 2, 3, 4], 2), LastMatch[str]()
    last.remember(key, 1, "node")
    assert last.handle_of(key.prefix(1)) == "node"
    for other in (key, key.prefix(0), make_key([9, 9], 2)):
        with pytest.raises(BadArgument, match="match it"):
            last.handle_of(other)
    last.forget()
    with pytest.raises(BadArgument, match="match it"):
        last.handle_of(key.prefix(1))
