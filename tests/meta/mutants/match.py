"""Faults of matching: how far a prefix is found, and of what is handed out.

What readers get wrong: that a match which is too short is harmless: it recomputes what was paid
for, and hides the fault.
"""

from __future__ import annotations

from kvcanon.conformance.overriding import Overrides
from kvcanon.reference import (
    match,
    tree,
)
from kvcanon.reference.state import Node
from kvcanon.spec.oracle.prefix import usable_prefix
from kvcanon.spec.types import (
    Namespace,
    Page,
)
from meta.mutants.entry import mutant


@mutant("MATCH-4", "B22 sgl#24638")
def namespaces_share_the_root(patch: Overrides) -> None:
    """A prompt of one tenant finds the pages of another."""

    def mixed(parent: Node, namespace: Namespace, page: Page) -> Page:
        return page

    patch.setattr(tree, "edge", mixed)


@mutant("MATCH-1", "A1 sgl#17061")
def match_ignores_tombstones(patch: Overrides) -> None:
    """A prefix is used though window data before its end is gone."""

    def careless(
        lengths: tuple[int, ...],
        full: tuple[bool, ...],
        swa: tuple[bool, ...],
        state: tuple[bool, ...],
        window: int,
    ) -> int:
        return usable_prefix(lengths, full, (True,) * len(lengths), state, window)

    patch.setattr(match, "usable_prefix", careless)


@mutant("MATCH-1", "D10 vllm#48959")
def match_window_is_one_short(patch: Overrides) -> None:
    """A window of all tokens but one is taken for enough."""

    def short(
        lengths: tuple[int, ...],
        full: tuple[bool, ...],
        swa: tuple[bool, ...],
        state: tuple[bool, ...],
        window: int,
    ) -> int:
        return usable_prefix(lengths, full, swa, state, max(1, window - 1))

    patch.setattr(match, "usable_prefix", short)


@mutant("MATCH-2", "D5 vllm#45704")
def load_in_flight_counts_as_there(patch: Overrides) -> None:
    """Slots are handed out before the bytes are in them."""
    patch.setattr(match, "on_device", lambda data: data.device is not None)
