"""Chapter 6. Events: what a cache emits for the routers of requests.

There is one event for each page and medium. Events are about *full* data only. Window data and
mamba states have none: a router that counted them would expect prefix hits that do not happen.

An event says that the bytes *are* on a medium, not that a copy was enqueued. A copy in flight has
no event until it is acknowledged (sgl#22894).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypeAlias

from attrs import field, frozen

from kvcanon.spec.oracle.folding import fold_page
from kvcanon.spec.types import DEFAULT_NAMESPACE, Medium, Namespace, Page


@frozen
class BlockStored:
    """A page is now on a medium."""

    block_hash: bytes
    parent_hash: bytes | None
    """Hash of the page before it; None for the first page of a namespace."""
    page: Page
    medium: Medium
    namespace: Namespace = DEFAULT_NAMESPACE


@frozen
class BlockRemoved:
    """A page is no longer on a medium."""

    block_hash: bytes
    medium: Medium


@frozen
class AllBlocksCleared:
    """Nothing is on any medium: the first event of every cache, and the event of a reset."""


Event: TypeAlias = BlockStored | BlockRemoved | AllBlocksCleared

Resident: TypeAlias = tuple[Medium, bytes]
"""A page, by its hash, on a medium."""


@frozen
class Residency:
    """Which pages are on which medium by a stream of events: a fixed base and the changes since.

    It is a value: `fold_events` returns a new one that shares the base.
    """

    base: Collection[Resident] = frozenset()
    changes: dict[Resident, bool] = field(factory=dict)

    def __contains__(self, resident: object) -> bool:
        changed = self.changes.get(resident)  # type: ignore[call-overload]
        return resident in self.base if changed is None else bool(changed)

    def agrees_with(self, other: Residency) -> bool:
        """Whether both have the same base, and the same pages are resident."""
        changed = self.changes.keys() | other.changes.keys()
        return self.base is other.base and all(
            (item in self) is (item in other) for item in changed
        )

    def resident(self) -> frozenset[Resident]:
        """All resident pages, as one set."""
        stored = {item for item, present in self.changes.items() if present}
        return frozenset(item for item in self.base if item not in self.changes) | stored


def fold_events(events: Iterable[Event], start: Residency | None = None) -> Residency:
    """The residency after a stream of events, page by page, from `start` or from nothing."""
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
