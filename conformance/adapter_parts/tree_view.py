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
from typing import Generic, TypeVar

from attrs import define, field, frozen

from kvcanon.conformance.adapter_parts.token_slots import units_of
from kvcanon.spec.errors import BadArgument, PrefixNotCached
from kvcanon.spec.types import Key, Unit

Node = TypeVar("Node")
Handle = TypeVar("Handle")


@frozen(eq=False)
class FoundPath(Generic[Node]):
    """The path of a key, as far as it is in a tree."""

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
    indices: Callable[[Node], Sequence[int]]
    """The token indices of the same part; a list of the same length."""

    def find(self, root: Node, key: Key) -> FoundPath[Node]:
        """Find the longest prefix of a key, in whole pages."""
        rest, nodes, indices, inside = units_of(key), [root], list[int](), False
        while rest and not inside:
            children = [
                (self._shared(self.tokens(each), rest), each) for each in self.children(nodes[-1])
            ]
            shared, node = max(children, key=lambda pair: pair[0], default=(0, root))
            if not shared:
                break
            nodes.append(node)
            indices += self.indices(node)[:shared]
            rest, inside = rest[shared:], shared < len(self.tokens(node))
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

    def _shared(self, tokens: Sequence[Unit], others: Sequence[Unit]) -> int:
        """How many leading tokens two lists share, in whole pages."""
        pairs = zip(tokens, others, strict=False)
        shared = next((at for at, (one, other) in enumerate(pairs) if one != other), None)
        shared = min(len(tokens), len(others)) if shared is None else shared
        return shared - shared % self.page_size


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
