"""Faults of events: what routers are not told, told twice, or told wrongly.

What readers get wrong: that a lost event heals: nothing tells a router that it has missed one.
"""

from __future__ import annotations

from kvcanon.conformance.overriding import Overrides
from kvcanon.reference import (
    announce,
    host_insert,
    victims,
)
from kvcanon.reference.state import Node, State
from kvcanon.spec.types import (
    CPU,
    GPU,
    Medium,
)
from meta.mutants.entry import mutant


@mutant("EVENT-10", "C2 sgl#22894")
def demotion_is_silent(patch: Overrides) -> None:
    """Routers are not told that a page left the device."""
    announce_removed = announce.announce_removed

    def of_the_host_only(state: State, node: Node, medium: Medium) -> None:
        if medium is CPU:
            announce_removed(state, node, medium)

    patch.setattr(victims, "announce_removed", of_the_host_only)


@mutant("EVENT-10", "C19 lmc#3532")
def host_eviction_is_silent(patch: Overrides) -> None:
    """Routers are not told that a page left the host."""
    announce_removed = announce.announce_removed

    def of_the_device_only(state: State, node: Node, medium: Medium) -> None:
        if medium is GPU:
            announce_removed(state, node, medium)

    patch.setattr(victims, "announce_removed", of_the_device_only)


@mutant("EVENT-10", "C3 sgl#38486")
def host_insert_is_silent(patch: Overrides) -> None:
    """Routers are not told of pages that were fetched."""
    patch.setattr(host_insert, "announce_stored", lambda *_: None)
