"""Chapter 6. Events: what a cache tells those who route requests.

One event a page and medium. Events speak of *full* data only: window data and recurrent states come
and go in silence, because a router that counted them would promise prefixes that nobody can use.

What readers get wrong: an event says that bytes *are* somewhere, not that somebody means to put
them there. A copy in flight has no event until it is acknowledged (sgl#22894).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypeAlias

from attrs import field, frozen

from kvcanon.spec.oracle.folding import fold_page
from kvcanon.spec.types import DEFAULT_NAMESPACE, Medium, Namespace, Page


@frozen
class BlockStored:
    """The page is now on the medium."""

    block_hash: bytes
    parent_hash: bytes | None
    """Name of the page before it; None where it is the first of its namespace."""
    page: Page
    medium: Medium
    namespace: Namespace = DEFAULT_NAMESPACE


@frozen
class BlockRemoved:
    """The page is on the medium no more."""

    block_hash: bytes
    medium: Medium


@frozen
class AllBlocksCleared:
    """Nothing is on any medium: the first event of every cache, and that of a reset."""


Event: TypeAlias = BlockStored | BlockRemoved | AllBlocksCleared

Resident: TypeAlias = tuple[Medium, bytes]
"""A page, by name, on a medium."""


@frozen
class Residency:
    """What a stream says is where: a large fixed base and the few changes since.

    It is a value: `fold_events` makes a new one that shares the base.
    """

    base: Collection[Resident] = frozenset()
    changes: dict[Resident, bool] = field(factory=dict)

    def __contains__(self, resident: object) -> bool:
        changed = self.changes.get(resident)  # type: ignore[call-overload]
        return resident in self.base if changed is None else bool(changed)

    def agrees_with(self, other: Residency) -> bool:
        """Whether it has the base of another, and the same is resident in both."""
        changed = self.changes.keys() | other.changes.keys()
        return self.base is other.base and all(
            (item in self) is (item in other) for item in changed
        )

    def resident(self) -> frozenset[Resident]:
        """All that is resident, gathered into one set."""
        stored = {item for item, present in self.changes.items() if present}
        return frozenset(item for item in self.base if item not in self.changes) | stored


def fold_events(events: Iterable[Event], start: Residency | None = None) -> Residency:
    """The residency that a stream of events implies, page by page, from `start` or from nothing."""
    base = start if start is not None else Residency()
    histories: dict[Resident, list[bool]] = {}
    for event in events:
        if isinstance(event, AllBlocksCleared):
            base, histories = Residency(), {}
        else:
            stored = isinstance(event, BlockStored)
            histories.setdefault((event.medium, event.block_hash), []).append(stored)
    folded = {item: fold_page(item in base, tuple(history)) for item, history in histories.items()}
    return Residency(base.base, {**base.changes, **folded})
