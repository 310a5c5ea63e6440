"""A radix cache of somebody else: tokens in, token indices out, locks on nodes.

It stands for caches of the kind of SGLang's: it works on lists of tokens, keeps one index per
token, and knows nothing of slots that requests hold. The scheduler owns the free list.
`their_radix_adapter.py` judges it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from itertools import count


class TreeNode:
    """A run of tokens, with the index of each token's KV."""

    def __init__(
        self, tokens: list[int], indices: list[int], parent: TreeNode | None = None
    ) -> None:
        self.tokens = tokens
        self.indices = indices
        self.parent = parent or self  # A root is its own parent.
        self.children: dict[tuple[int, ...], TreeNode] = {}
        self.lock_ref = 0
        self.last_used = 0

    def __lt__(self, other: TreeNode) -> bool:
        return self.last_used < other.last_used


class RadixTree:
    """The cache: one tree for each extra key."""

    def __init__(self, page_size: int) -> None:
        self.page_size = page_size
        self.roots: dict[str | None, TreeNode] = {}
        self.ticks = count(1)

    def root_of(self, extra_key: str | None = None) -> TreeNode:
        """The root of an extra key's tree."""
        return self.roots.setdefault(extra_key, TreeNode([], []))

    def match_prefix(
        self, tokens: list[int], extra_key: str | None = None
    ) -> tuple[list[int], TreeNode]:
        """Find the longest cached prefix in whole pages: its indices, and the node it ends at."""
        node = self._walk(tokens, extra_key)
        indices: list[int] = []
        for each in self._path(node):
            indices[:0] = each.indices
        return indices, node

    def insert(self, tokens: list[int], indices: list[int], extra_key: str | None = None) -> int:
        """Keep a prompt; returns how many tokens were there, whose indices it does not take."""
        node = self._walk(tokens, extra_key)
        present = sum(len(each.tokens) for each in self._path(node))
        if present < len(tokens):
            leaf = TreeNode(tokens[present:], indices[present:], node)
            leaf.last_used = next(self.ticks)
            node.children[self._first_page(leaf.tokens)] = leaf
        return present

    def inc_lock_ref(self, node: TreeNode) -> None:
        """Protect a node and all above it from eviction."""
        for each in self._path(node):
            each.lock_ref += 1

    def dec_lock_ref(self, node: TreeNode) -> None:
        """Undo one `inc_lock_ref`."""
        for each in self._path(node):
            each.lock_ref -= 1

    def evict(self, tokens: int, free: Callable[[list[int]], object]) -> None:
        """Drop least recently used leaves until this many tokens are free, or no leaf is left."""
        leaves = [node for node in self._nodes() if not node.children and not node.lock_ref]
        heapq.heapify(leaves)
        while tokens > 0 and leaves:
            leaf = heapq.heappop(leaves)
            free(leaf.indices)
            tokens -= len(leaf.indices)
            parent = leaf.parent
            del parent.children[self._first_page(leaf.tokens)]
            if parent.parent is not parent and not parent.children and not parent.lock_ref:
                heapq.heappush(leaves, parent)

    def _walk(self, tokens: list[int], extra_key: str | None) -> TreeNode:
        """Go down a prompt, make its nodes recent, and cut the last where the prompt leaves it."""
        node, now = self.root_of(extra_key), next(self.ticks)
        while (child := node.children.get(self._first_page(tokens))) is not None:
            shared = self._shared(child.tokens, tokens)
            if shared < len(child.tokens):
                child = self._split(child, shared)
            child.last_used = now
            node, tokens = child, tokens[shared:]
        return node

    def _split(self, node: TreeNode, at: int) -> TreeNode:
        """Cut a node; returns the new node above it."""
        upper = TreeNode(node.tokens[:at], node.indices[:at], node.parent)
        upper.lock_ref, upper.last_used = node.lock_ref, node.last_used
        node.parent.children[self._first_page(upper.tokens)] = upper
        node.tokens, node.indices, node.parent = node.tokens[at:], node.indices[at:], upper
        upper.children[self._first_page(node.tokens)] = node
        return upper

    def _shared(self, one: list[int], other: list[int]) -> int:
        """How many leading tokens two lists share, in whole pages."""
        pages = range(0, min(len(one), len(other)), self.page_size)
        ends = (at + self.page_size for at in pages)
        return next(
            (end - self.page_size for end in ends if one[:end] != other[:end]),
            len(pages) * self.page_size,
        )

    def _first_page(self, tokens: list[int]) -> tuple[int, ...]:
        return tuple(tokens[: self.page_size])

    def _path(self, node: TreeNode) -> Iterator[TreeNode]:
        """The nodes from one up to its root, which is left out."""
        while node.parent is not node:
            yield node
            node = node.parent

    def _nodes(self) -> Iterator[TreeNode]:
        """All nodes, without the roots."""
        rest = [child for root in self.roots.values() for child in root.children.values()]
        while rest:
            node = rest.pop()
            rest += node.children.values()
            yield node
