"""Event log: a cache's own events, with its own block hashes, as events of the spec.

Engines name blocks by hashes of their own. The log learns the page hashes of each key that the
adapter passes on, by the cache's names of its pages, and translates events with them.

It emits what the cache emitted, in that order, and nothing else. A cache without events has no
`take_events`: events that the adapter makes up from its own calls would say that the adapter is
right. A block that no key had keeps its name, which no law accepts as a page hash.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from attrs import Factory, define

from kvcanon.spec.events import AllBlocksCleared, BlockRemoved, BlockStored, Event
from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.types import DEFAULT_NAMESPACE, GPU, Key, Medium, Namespace, Page


@define(eq=False)
class EventLog:
    """The events since the last `take`; the first event of a cache is `AllBlocksCleared`."""

    _page_hashes: dict[Hashable, bytes] = Factory(dict)
    _events: list[Event] = Factory(lambda: [AllBlocksCleared()])

    def learn(self, key: Key, blocks: Iterable[Hashable]) -> None:
        """Remember the page hashes of a key, by the cache's name for each of its pages."""
        hashes = page_hashes(namespace_seed(key.namespace), key.pages)
        self._page_hashes.update(zip(blocks, hashes, strict=True))

    def stored(
        self,
        block: Hashable,
        parent: Hashable | None,
        page: Page,
        namespace: Namespace = DEFAULT_NAMESPACE,
        medium: Medium = GPU,
    ) -> None:
        """The cache emitted that a page is stored; `parent` is None for the first of a prompt."""
        before = None if parent is None else self._hash_of(parent)
        self._events.append(BlockStored(self._hash_of(block), before, page, medium, namespace))

    def removed(self, block: Hashable, medium: Medium = GPU) -> None:
        """The cache emitted that a page is removed."""
        self._events.append(BlockRemoved(self._hash_of(block), medium))

    def cleared(self) -> None:
        """The cache emitted that nothing is cached any more."""
        self._events.append(AllBlocksCleared())

    def take(self) -> tuple[Event, ...]:
        """The events since the last call."""
        taken, self._events = tuple(self._events), []
        return taken

    def _hash_of(self, block: Hashable) -> bytes:
        return self._page_hashes.get(block) or repr(block).encode()
