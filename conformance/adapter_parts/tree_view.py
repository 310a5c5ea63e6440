"""Looks into a cache's radix tree without calling it, so that a look leaves no trace.

A lock must leave recency alone, and so must a refused call. But most radix caches have one way to
find a prefix, a match, and it makes the prefix recent. So the adapter reads the nodes themselves.
If the nodes cannot be read, as in a compiled cache, `LastMatch` keeps the handle of the last match,
as an engine does.

Neither may answer a match: that answer must come from the cache's own call, or the judge would
judge the adapter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, SupportsIndex, TypeVar

from attrs import define, field, frozen

from kvcanon.conformance.adapter_parts.token_slots import numbers_of, units_of
from kvcanon.spec.errors import BadArgument, PrefixNotCached
from kvcanon.spec.types import Key, Unit

Node = TypeVar("Node")
Handle = TypeVar("Handle")


@frozen(eq=False)
class FoundPath(Generic[Node]):
    """The part of a key's path that is in a tree."""

    nodes: tuple[Node, ...]
    """From the root on; the last one may be shared in part."""
    pages: int
    """Whole pages of the key that are in the tree."""
    indices: tuple[int, ...]
    """The token indices of these pages."""
    inside: bool
    """Whether the path ends inside its last node."""


@frozen(eq=False)
class TreeView(Generic[Node]):
    """How to read the nodes of a cache's radix tree. No effect on the cache."""

    page_size: int
    children: Callable[[Node], Iterable[Node]]
    """The child nodes; where one tree has all namespaces, those of the key's namespace alone."""
    tokens: Callable[[Node], Sequence[Unit]]
    """The tokens of a node's own part of the path, as a list."""
    indices: Callable[[Node], Iterable[SupportsIndex]]
    """The token indices of the same part, as many; a list or a tensor."""

    def find(self, root: Node, key: Key) -> FoundPath[Node]:
        """Find the longest prefix of a key, in whole pages."""
        units, nodes, indices, inside, at = units_of(key), [root], list[int](), False, 0
        while at < len(units) and not inside:
            shared, length, node = 0, 0, root
            for each in self.children(nodes[-1]):
                tokens = self.tokens(each)
                if (also := self._shared(tokens, units, at)) > shared:
                    shared, length, node = also, len(tokens), each
            if not shared:
                break
            nodes.append(node)
            indices += numbers_of(self.indices(node))[:shared]
            at, inside = at + shared, shared < length
        return FoundPath(tuple(nodes), len(indices) // self.page_size, tuple(indices), inside)

    def end_of(self, root: Node, key: Key) -> Node:
        """The node that a key ends at, to lock it; the root for the empty key.

        Raises: PrefixNotCached. BadArgument: the key ends inside a node, which has no handle;
            declare `Limit.NODE_HANDLES`.
        """
        found = self.find(root, key)
        if found.pages < len(key):
            raise PrefixNotCached(len(key), found.pages)
        if found.inside:
            raise BadArgument("key", "ends inside a node, which this cache has no handle for")
        return found.nodes[-1]

    def indices_of(self, root: Node, key: Key) -> tuple[int, ...]:
        """The token indices of a key that is in the tree: what an insert begins with.

        Raises: PrefixNotCached.
        """
        found = self.find(root, key)
        if found.pages < len(key):
            raise PrefixNotCached(len(key), found.pages)
        return found.indices

    def _shared(self, tokens: Sequence[Unit], units: Sequence[Unit], begin: int) -> int:
        """How many leading tokens of a node the units from `begin` on share, in whole pages."""
        size, most = self.page_size, min(len(tokens), len(units) - begin)
        if list(tokens[:size]) != units[begin : begin + size]:
            return 0  # Most children of a node end here.
        pairs = zip(tokens, units[begin : begin + most], strict=False)
        shared = next((at for at, (one, other) in enumerate(pairs) if one != other), most)
        return shared - shared % size


@define(eq=False)
class LastMatch(Generic[Handle]):
    """The handle of the last match, for a cache whose nodes cannot be read.

    An engine locks directly after a match, with what the match returned. So does the adapter, and
    refuses a lock of anything else: the engine never makes that call. Call `forget` before each
    operation that may remove or cut nodes.
    """

    _found: tuple[Key, Handle] | None = field(default=None, init=False)

    def remember(self, key: Key, pages: int, handle: Handle) -> None:
        """Keep the handle of a match that found the first `pages` pages of a key."""
        self._found = key.prefix(pages), handle

    def forget(self) -> None:
        """Drop the handle."""
        self._found = None

    def handle_of(self, key: Key) -> Handle:
        """The handle of what the last match found. Raises: BadArgument: that is not this key."""
        if self._found is None or self._found[0] != key:
            raise BadArgument("key", "is not what the last match found; match it, then call again")
        return self._found[1]
