"""Chapter 6. Events: what a cache emits for the routers of requests.

There is one event for each page and medium. Events are about *full* data only. Window data and
mamba states have none: a router that counted them would expect prefix hits that do not happen.

An event says that the bytes *are* on a medium, not that a copy was enqueued. A copy in flight has
no event until it is acknowledged (sgl#22894).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Generic, TypeAlias, TypeVar

from attrs import frozen

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

PageHash = TypeVar("PageHash", bound=Hashable)


class PagesByMedium(Generic[PageHash]):
    """Sets of pages, one a medium, where hashes are of any kind: bytes, or a number on a wire."""

    def __init__(self, pages: Iterable[tuple[Medium, PageHash]] = ()) -> None:
        self._on: dict[Medium, set[PageHash]] = {}
        for medium, page in pages:
            self.on(medium).add(page)

    def __contains__(self, item: tuple[Medium, PageHash]) -> bool:
        return item[1] in self._on.get(item[0], ())

    def __iter__(self) -> Iterator[tuple[Medium, PageHash]]:
        return ((medium, page) for medium, pages in self._on.items() for page in pages)

    def __bool__(self) -> bool:
        return any(self._on.values())

    def on(self, medium: Medium) -> set[PageHash]:
        """The pages that are on a medium now; the set follows later changes."""
        return self._on.setdefault(medium, set())

    def put(self, medium: Medium, page: PageHash, *, stored: bool) -> None:
        """Take one store or remove of a page."""
        pages = self.on(medium)
        (pages.add if fold_page(page in pages, (stored,)) else pages.discard)(page)

    def clear(self) -> None:
        """Take all pages off all media."""
        for pages in self._on.values():
            pages.clear()


class Residency(PagesByMedium[bytes]):
    """Which pages are on which medium, by the events so far.

    Every reader of events folds them with it, one by one, and may look at it between two:

        residency = Residency()
        for event in events:
            known = isinstance(event, BlockStored) and (event.medium, event.block_hash) in residency
            residency.fold(event)
        on_device = residency.on(GPU)

    `ahead` looks at what further events come to, and leaves the residency alone.
    """

    def fold(self, event: Event) -> None:
        """Take the next event."""
        if isinstance(event, AllBlocksCleared):
            self.clear()
        else:
            self.put(event.medium, event.block_hash, stored=isinstance(event, BlockStored))

    def ahead(self, events: Iterable[Event] = ()) -> Ahead:
        """What the residency is after these events, and can be after more."""
        ahead = Ahead(self)
        for event in events:
            ahead.fold(event)
        return ahead


class Ahead:
    """A residency some events later: the changes since, by page and medium.

    The residency that it starts from must stay as it is while this is in use; `settle` moves it on.
    """

    def __init__(self, start: Residency, changes: Mapping[Resident, bool] | None = None) -> None:
        self.changes: dict[Resident, bool] = dict(changes or {})
        """The pages of which events spoke since: True if they are there now."""
        self._start = start
        self._cleared = False

    def __contains__(self, item: Resident) -> bool:
        changed = self.changes.get(item)
        if changed is not None:
            return changed
        return not self._cleared and item in self._start

    def __iter__(self) -> Iterator[Resident]:
        if not self._cleared:
            yield from (item for item in self._start if item not in self.changes)
        yield from (item for item, present in self.changes.items() if present)

    def fold(self, event: Event) -> None:
        """Take the next event."""
        if isinstance(event, AllBlocksCleared):
            self.changes.clear()
            self._cleared = True
        else:
            item = event.medium, event.block_hash
            self.changes[item] = fold_page(item in self, (isinstance(event, BlockStored),))

    def agrees_with(self, other: Ahead) -> bool:
        """Whether both are the same pages, from the same start and without a clear."""
        if self._cleared or other._cleared or self._start is not other._start:
            return False
        return all((item in self) is (item in other) for item in {**self.changes, **other.changes})

    def settle(self) -> None:
        """Move the residency that this starts from on to here."""
        if self._cleared:
            self._start.clear()
        for (medium, page), present in self.changes.items():
            self._start.put(medium, page, stored=present)
        self._cleared = False
        self.changes.clear()


def fold_events(events: Iterable[Event]) -> Residency:
    """The residency after all events of a stream, from its beginning."""
    residency = Residency()
    for event in events:
        residency.fold(event)
    return residency
