"""Removes: variations of the order in which events remove the pages of one node.

The order inside a node is free, the order between nodes is not: a page is removed after the pages
of all nodes below its node, whatever the profile says.
"""

from __future__ import annotations

from collections.abc import Callable

from kvcanon.lab.variants.registry import variation
from kvcanon.lab.variants.wrapped_rules import around
from kvcanon.reference import departures
from kvcanon.reference.events import emit_removed
from kvcanon.reference.state import Node, State
from kvcanon.spec.types import Medium

Announce = Callable[[State, Node, Medium], None]


@variation
@around(emit_removed, departures)
def removes_front_to_back(announce: Announce, state: State, node: Node, medium: Medium) -> None:
    """A node's pages are removed from the first to the last."""
    waiting = len(state.events)
    announce(state, node, medium)
    state.events[waiting:] = reversed(state.events[waiting:])
