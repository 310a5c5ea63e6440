"""Written bytes: which bytes were written for which page, as far as the guard saw it.

A request writes bytes into slots and inserts the slots; from then on they are the bytes of pages.
They are tracked there, so that the bytes of matched slots can be checked.

A page that was computed twice may have other bytes the second time, on another medium, and both are
right. So all bytes that were inserted since the page came are kept. Bytes that the guard did not
see written are unknown, and not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

from kvcanon.conformance.judge.answers import Read
from kvcanon.conformance.judge.by_states.capture import read_known_slots
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.laws.page_hashes import PageHashes
from kvcanon.spec.operations import HostInserted, HostPayload, Insert, Inserted, Matched
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import FULL, MAMBA, SWA, Component, Key, Slot, Slots
from kvcanon.spec.views import COLUMN, PageRow, Stamp, Step

Item: TypeAlias = tuple[Component, bytes]
"""One component's data for a page, or the mamba state at its end; the page is given by its hash."""

UNKNOWN: tuple[bytes, ...] = ()
"""Marks data in the tree whose write the guard did not see."""


class WrittenBytes:
    """Bytes by slot while requests hold them, by page while the tree does.

    It starts at the first write. From then on all data in the tree has an entry, known or unknown,
    so that data without an entry is not in the tree.
    """

    def __init__(self) -> None:
        self._slots: dict[tuple[Component, Slot], bytes] = {}
        self._pages: dict[Item, tuple[bytes, ...]] = {}
        self._begun = False
        self._kept = 0

    def wrote(
        self, component: Component, slot: Slot, data: bytes, state: Callable[[], Snapshot]
    ) -> None:
        """Record what a request wrote into a slot that it holds."""
        if not self._begun:
            self._begun = True
            self._pages = dict.fromkeys(_data_in(state()), UNKNOWN)
        self._slots[component, slot] = data

    def freed(self, slots: Slots) -> None:
        """Forget the bytes of slots that a request freed."""
        if self._slots:
            for component, some in slots:
                for slot in some:
                    self._slots.pop((component, slot), None)

    def inserted(self, call: Insert, outcome: Inserted) -> None:
        """Move the bytes of slots that the tree took to their pages, and forget the others.

        The tree takes full slots from the first page on that was not present. For the other
        components the outcome says only how many were taken, so all count as taken unless none was.
        """
        if not self._begun:
            return
        names = _names(call.key)
        for component, some in call.slots:
            for page, slot in zip(call.pages_of(component), some, strict=True):
                data = self._slots.pop((component, slot), None)
                present = component is FULL and page < outcome.present_pages
                if outcome.adopted[component] and not present:
                    self._enter((component, names[page]), data)

    def inserted_host(self, key: Key, payload: HostPayload, outcome: HostInserted) -> None:
        """Record fetched bytes that the host tier took."""
        if not self._begun:
            return
        names = _names(key)
        placed = outcome.placed_pages + outcome.refilled_pages
        for component, some in ((FULL, payload.full), (SWA, payload.swa), (MAMBA, payload.mamba)):
            if component is not FULL or placed:
                for page, data in enumerate(some, len(key) - len(some)):
                    self._enter((component, names[page]), data)

    def fetched(self, pages: Mapping[bytes, tuple[bytes, ...]]) -> None:
        """Record pages that came from the store, with the bytes that were written for each."""
        if self._begun:
            for name, right in pages.items():
                for data in right or (None,):
                    self._enter((FULL, name), data)

    def known(self, component: Component, page_hash: bytes) -> tuple[bytes, ...]:
        """The bytes that were written for a page that is in the tree; empty where unknown."""
        return self._pages.get((component, page_hash), UNKNOWN)

    def cleared(self) -> None:
        """Forget the bytes of all pages; requests keep their slots."""
        self._pages.clear()

    def stamps(
        self, key: Key, matched: Matched, config: CacheConfig, read: Read
    ) -> tuple[Stamp, ...]:
        """Read each slot that a match returned, if the page's bytes are known."""
        if not self._pages:
            return ()
        names = _names(key)

        def known_bytes(component: Component) -> list[tuple[bytes, ...]]:
            return [self._pages.get((component, name), UNKNOWN) for name in names]

        return read_known_slots(matched, config, read, known_bytes)

    def stamp_on_host(
        self, state: Snapshot, component: Component, slot: Slot, data: bytes
    ) -> tuple[Stamp, ...]:
        """What was read behind a host slot, beside the bytes of the page that has it, if known."""
        for node in state.below_root() if self._pages else ():
            part = node[component]
            if part.host is None or slot not in part.host or part.backing is not None:
                continue
            at = len(node.pages) - 1 if component is MAMBA else part.host.index(slot)
            name = PageHashes(state).of(node)[at]
            known = self._pages.get((component, name), UNKNOWN)
            expected = data if data in known else known[-1] if known else data
            return (Stamp(component, state.starts[node.node_id] + at, slot, expected, data),)
        return ()

    def forget(self, step: Step) -> None:
        """Forget the bytes of what left the tree in a step.

        Steps that were not judged may have evicted more; once the number of entries has doubled,
        all entries that are no longer in the tree are dropped.
        """
        if not self._pages:
            return
        names = PageHashes(step.before)
        for each in step.lost:
            if each.after is None or not _has(each.after, each.component):
                page_hash = names.row_place(each.before).page_hash
                self._pages.pop((each.component, page_hash), None)
        if len(self._pages) > 2 * self._kept + 1024:
            there = _data_in(step.after)
            self._pages = {item: known for item, known in self._pages.items() if item in there}
            self._kept = len(self._pages)

    def _enter(self, item: Item, data: bytes | None) -> None:
        known = self._pages.get(item)
        if data is None or known == UNKNOWN:
            self._pages[item] = UNKNOWN
        elif known is None or data not in known:
            self._pages[item] = (*(known or ()), data)


@lru_cache(maxsize=16)  # An insert mostly follows the match of its key.
def _names(key: Key) -> Sequence[bytes]:
    return page_hashes(namespace_seed(key.namespace), key.pages)


def _has(row: PageRow, component: Component) -> bool:
    """Whether a page has a component's data on some medium."""
    column = COLUMN[component]
    return row.device[column] is not None or row.host[column] is not None


def _data_in(state: Snapshot) -> set[Item]:
    """Return all data of a state."""
    names = PageHashes(state)
    return {
        (component, name)
        for node in state.below_root()
        for component, data in node.data.items()
        if data.anywhere
        for name in (names.of(node)[-1:] if component is MAMBA else names.of(node))
    }
