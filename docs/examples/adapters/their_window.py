"""A block tree of somebody else, for a model with a sliding window: two pools, and pairs of blocks.

It stands for caches in which a prompt's older blocks lose their window data and stay in the tree:
such a prefix can be used only where the last window before its end is whole. One allocator gives
out both kinds of blocks, and knows the window block of each full block.
`their_window_adapter.py` judges it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count


class PairedAllocator:
    """Full blocks, and window blocks for some of them."""

    def __init__(self, full_blocks: int, window_blocks: int) -> None:
        self.free_full = list(range(full_blocks))
        self.free_windows = list(range(window_blocks))
        self.window_of: dict[int, int] = {}

    def alloc(self, blocks: int, windows: int) -> list[int]:
        """Take full blocks; the last ones get a window block each."""
        taken = [self.free_full.pop() for _ in range(blocks)]
        for block in taken[blocks - windows :]:
            self.window_of[block] = self.free_windows.pop()
        return taken

    def release_windows(self, blocks: Iterable[int]) -> None:
        """Free the window blocks of full blocks, as when the window has moved past them."""
        for block in blocks:
            if block in self.window_of:
                self.free_windows.append(self.window_of.pop(block))

    def release(self, blocks: Sequence[int]) -> None:
        """Free full blocks and their window blocks."""
        self.release_windows(blocks)
        self.free_full.extend(blocks)


class Node:
    """One block of a prompt."""

    def __init__(self, parent: Node | None, tokens: tuple[int, ...], block: int) -> None:
        self.parent = parent
        self.tokens = tokens
        self.block = block
        self.children: dict[tuple[int, ...], Node] = {}
        self.locks = 0
        self.window_locks = 0
        self.last_used = 0
        self.window_used = 0


class WindowTree:
    """The cache: one tree for each salt."""

    def __init__(self, allocator: PairedAllocator, block_size: int, window_tokens: int) -> None:
        self.allocator = allocator
        self.block_size = block_size
        self.window_blocks = -(-window_tokens // block_size)
        self.roots: dict[str | None, Node] = {}
        self.ticks = count(1)

    def find(self, tokens: list[int], salt: str | None = None) -> list[Node]:
        """The blocks of a prompt that are in the tree. A look: it changes nothing."""
        node, path = self._root(salt), list[Node]()
        for chunk in self._chunks(tokens):
            if chunk not in node.children:
                break
            node = node.children[chunk]
            path.append(node)
        return path

    def match(self, tokens: list[int], salt: str | None = None) -> list[Node]:
        """The blocks of the longest prefix that ends in a whole window; they become recent."""
        path = self.find(tokens, salt)
        usable = gapless = 0
        for blocks, node in enumerate(path, 1):
            gapless = gapless + 1 if self._has_window(node) else 0
            if gapless >= min(blocks, self.window_blocks):
                usable = blocks
        self._use(path[:usable])
        return path[:usable]

    def lock(self, path: list[Node]) -> None:
        """Keep a prefix from being evicted, and the window data at its end."""
        for node in path:
            node.locks += 1
        for node in path[-self.window_blocks :]:
            node.window_locks += 1

    def unlock(self, path: list[Node], *, window: bool = True) -> None:
        """Undo a lock; without `window`, one whose window was unlocked before."""
        for node in path:
            node.locks -= 1
        if window:
            self.unlock_window(path)

    def unlock_window(self, path: list[Node]) -> None:
        """Undo the part of a lock that keeps window data: the request has moved past it."""
        for node in path[-self.window_blocks :]:
            node.window_locks -= 1

    def insert(self, tokens: list[int], blocks: list[int], salt: str | None = None) -> int:
        """Keep a prompt, and free what is there twice; returns how many blocks were there."""
        path = self.find(tokens, salt)
        for node, block in zip(path, blocks, strict=False):
            if node.block != block:
                self._heal(node, block)
                self.allocator.release([block])
        present = len(path)
        for chunk, block in list(zip(self._chunks(tokens), blocks, strict=True))[present:]:
            parent = path[-1] if path else self._root(salt)
            parent.children[chunk] = Node(parent, chunk, block)
            path.append(parent.children[chunk])
        self._use(path)
        return present

    def evict(self, blocks: int, windows: int) -> tuple[int, int]:
        """Free blocks of both kinds, the least recent ones first; returns how many came free."""
        full, window = self.allocator.free_full, self.allocator.free_windows
        before, windows_before = len(full), len(window)
        while len(full) - before < blocks:
            leaves = [node for node in self._nodes() if not node.children and not node.locks]
            if not leaves:
                break
            self._remove(min(leaves, key=lambda node: node.last_used))
        while len(window) - windows_before < windows:
            idle = [n for n in self._nodes() if self._has_window(n) and not n.window_locks]
            if not idle:
                break
            victim = min(idle, key=lambda node: node.window_used)
            if victim.children or victim.locks:
                self.allocator.release_windows([victim.block])
            else:
                self._remove(victim)
        return len(full) - before, len(window) - windows_before

    def _root(self, salt: str | None) -> Node:
        return self.roots.setdefault(salt, Node(None, (), -1))

    def _chunks(self, tokens: list[int]) -> Iterator[tuple[int, ...]]:
        for begin in range(0, len(tokens), self.block_size):
            yield tuple(tokens[begin : begin + self.block_size])

    def _has_window(self, node: Node) -> bool:
        return node.block in self.allocator.window_of

    def _heal(self, node: Node, block: int) -> None:
        """Give a node that lost its window data that of another block with the same content."""
        windows = self.allocator.window_of
        if block in windows and not self._has_window(node):
            windows[node.block] = windows.pop(block)
            node.window_used = 0  # It is new, and becomes recent with this insert.

    def _use(self, path: list[Node]) -> None:
        # The window's blocks become recent, and the one before it, which the next token may need.
        for depth, node in enumerate(reversed(path)):
            node.last_used = next(self.ticks)
            if depth <= self.window_blocks or not node.window_used:
                node.window_used = node.last_used

    def _nodes(self) -> Iterator[Node]:
        waiting = [child for root in self.roots.values() for child in root.children.values()]
        while waiting:
            node = waiting.pop()
            waiting.extend(node.children.values())
            yield node

    def _remove(self, leaf: Node) -> None:
        self.allocator.release([leaf.block])
        if leaf.parent:
            del leaf.parent.children[leaf.tokens]
