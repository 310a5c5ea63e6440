"""Tables from nodes of the tree to SGLang's token slots.

The native tree knows which nodes have data; a table has its token slots, one tensor a node, on the
device of the slots, so that no call reads a device tensor. What leaves is handed back without a
search, and a match that ends in one node is one tensor.

Slots have 32 bits there and 64 bits in SGLang: the copy that every answer is converts them. A pool
has fewer than 2**31 slots.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

MOST_SLOTS = (1 << 31) - 1


class SlotTable:
    """The token slots of one component on one medium, by node.

    Args:
        pages: How many pages the pool has.
        page_size: Tokens a page; 1 for states.
        device: Where SGLang has its slots.

    Raises:
        ValueError: the pool has more slots than 31 bits can number.
    """

    def __init__(self, pages: int, page_size: int, device: torch.device | str) -> None:
        if pages * page_size > MOST_SLOTS:
            raise ValueError(f"a pool of {pages * page_size} slots; at most {MOST_SLOTS}")
        self.pages, self.page_size = pages, page_size
        self.nothing = torch.empty((0,), dtype=torch.int64, device=device)
        """Token slots of no node; shared, and never written."""
        self._slots: dict[int, torch.Tensor] = {}

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, node: int) -> bool:
        return node in self._slots

    def put(self, node: int, tokens: torch.Tensor) -> None:
        """Set the token slots of a node, to a copy of `tokens`."""
        # A conversion is a copy; what needs none would stay the caller's.
        copied = tokens.int() if tokens.dtype is torch.int64 else tokens.int().clone()
        self._slots[node] = copied

    def get(self, node: int) -> torch.Tensor:
        """The token slots of a node: a new tensor."""
        return self._slots[node].long()

    def take(self, node: int) -> torch.Tensor:
        """Forget the token slots of a node, and return them."""
        return self._slots.pop(node).long()

    def forget(self, node: int) -> None:
        """Forget the token slots of a node."""
        self._slots.pop(node)

    def of_path(self, nodes: Sequence[int]) -> torch.Tensor:
        """The token slots of nodes in a row: a new tensor."""
        if len(nodes) == 1:
            return self._slots[nodes[0]].long()
        if not nodes:
            return self.nothing
        return torch.cat([self._slots[node] for node in nodes]).long()

    def all(self) -> torch.Tensor:
        """The token slots of every node: a new tensor."""
        return self.of_path(list(self._slots))

    def cut(self, upper: int, lower: int, pages: int) -> None:
        """Give the upper part of a node that was cut its pages; nothing where it has no slots."""
        if lower not in self._slots:
            return
        tokens, at = self._slots[lower], pages * self.page_size
        # Copies, so that neither keeps the memory of the other.
        self._slots[upper] = tokens[:at].clone()
        self._slots[lower] = tokens[at:].clone()

    def clear(self) -> None:
        """Forget all."""
        self._slots.clear()

    def lengths(self) -> dict[int, int]:
        """How many token slots each node has."""
        return {node: len(tokens) for node, tokens in self._slots.items()}
