"""Kinds of actions: the function, the weight and the properties of each action.

There are two tables of actions. Those in `actions` are drawn at random, and what their picks mean
depends on earlier actions. Those in `exact_actions` name their keys themselves, and are never
drawn. A case may have both.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import frozen

from kvcanon.conformance.cases.client import Client
from kvcanon.conformance.protocol.adapter import Capability

Do = Callable[[Client, int, int, int], None]


@frozen
class ActionKind:
    """The function, weight and needs of one action."""

    name: str
    do: Do
    weight: int
    """How often it is drawn, relative to the others; 0 for never."""
    needs: frozenset[Capability]
    host: bool
    """Whether it needs a host tier."""


def enter(
    table: dict[str, ActionKind], weight: int, *needs: Capability, host: bool = False
) -> Callable[[Do], Do]:
    """Enter a function into a table of actions, under its own name."""

    def entered(do: Do) -> Do:
        table[do.__name__] = ActionKind(do.__name__, do, weight, frozenset(needs), host)
        return do

    return entered
