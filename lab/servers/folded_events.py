"""What KV events say is cached: the pages by medium, folded from a stream of batches.

A router keeps the same state. Two tree cores that answered alike must have left it alike, and on it
the overlap of a prompt is what the engine then reports as cached.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from attrs import Factory, define

from kvcanon.lab.servers.script import Tokens
from kvcanon.spec.events import PagesByMedium
from kvcanon.spec.hashing import page_hashes, wire_id
from kvcanon.spec.types import CPU, GPU, Medium

MEDIA = (GPU, CPU)

WireEvent = Mapping[str, Any]


@define
class FoldedEvents:
    """The cached pages by medium, and what was wrong with the events so far.

    Pages are a set, as a router keeps them: a page that is stored twice and removed once is gone.
    """

    page_size: int
    pages: PagesByMedium[int] = Factory(PagesByMedium)
    faults: list[str] = Factory(list)
    removed: int = 0
    """Pages that were removed from the device."""
    mixed: bool = False
    """Whether a prompt had an `extra_key` since the cache was empty.

    SGLang leaves it out of hashes, so that pages of two namespaces may have one hash, and the first
    to go removes both.
    """
    next_batch: int | None = None
    """The number of the batch that comes next; None before the first."""

    def fold(self, number: int, events: Iterable[WireEvent]) -> None:
        """Fold one batch, the events of one step."""
        if self.next_batch is not None and number != self.next_batch:
            self.faults.append(f"batch {number} came where {self.next_batch} was due")
        self.next_batch = number + 1
        for event in events:
            self._fold_one(event)

    def resident(self) -> Tokens:
        """The number of pages by medium."""
        return tuple(len(self.pages.on(medium)) for medium in MEDIA)

    def has_pages(self, tokens: Sequence[int]) -> bool:
        """Whether all whole pages of a prompt of no namespace are cached.

        A stream that says nothing at all is not asked for more.
        """
        if self.next_batch is None:
            return True
        return self.overlap(tokens)[1] == len(tokens) // self.page_size

    def overlap(self, tokens: Sequence[int]) -> Tokens:
        """The leading pages of a prompt of no namespace on the device, and on either medium."""
        size = self.page_size
        whole = len(tokens) // size
        pages = [tuple(tokens[at * size : (at + 1) * size]) for at in range(whole)]
        hashes = [wire_id(each) for each in page_hashes(b"", pages)]
        device, host = map(self.pages.on, MEDIA)
        return (_leading(hashes, device), _leading(hashes, device | host))

    def _fold_one(self, event: WireEvent) -> None:
        kind = event["type"]
        if kind == "AllBlocksCleared":
            self.pages.clear()
            self.mixed = False
            return
        medium, hashes = event.get("medium"), event["block_hashes"]
        if medium not in MEDIA:
            self.faults.append(f"{kind} names the medium {medium!r}")
            return
        medium, is_store = Medium(medium), kind == "BlockStored"
        if is_store:
            if len(event["token_ids"]) != len(hashes) * self.page_size:
                self.faults.append(
                    f"{kind} has {len(event['token_ids'])} tokens for {len(hashes)} pages"
                )
        else:
            missing = [each for each in hashes if (medium, each) not in self.pages]
            if missing and not self.mixed:
                self.faults.append(f"{kind} of {len(missing)} pages that are not on {medium}")
            self.removed += len(hashes) * (medium is GPU)
        for each in hashes:
            self.pages.put(medium, each, stored=is_store)


def _leading(hashes: Sequence[int], there: Collection[int]) -> int:
    for count, each in enumerate(hashes):
        if each not in there:
            return count
    return len(hashes)
