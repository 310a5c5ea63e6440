"""A small scheduler of one rank: it serves requests, and digests every answer of its cache."""

from __future__ import annotations

from collections import deque
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
from attrs import define

from kvcanon.optimized.prefix_cache import PrefixCache
from kvcanon.spec.errors import CacheError, OutOfSlots, TransferPending
from kvcanon.spec.transfer import TransferStatus
from kvcanon.spec.types import TransferId

AT_ONCE = 8
"""Requests that run at the same time."""
FIELDS_OF = {
    "match": ("prefix_pages", "device_pages", "full", "swa", "mamba", "pending"),
    "insert": ("present_pages", "adopted", "freed", "backups", "backup_declined_pages"),
    "load_back": ("transfer_id", "decision", "loading", "evicted", "full", "swa", "mamba"),
}
EVENT_FIELDS = ("kind", "medium", "pages", "hashes", "parent_hash", "namespace")

Tokens = npt.NDArray[np.int32]


@define
class Running:
    """A request between its start and its insert."""

    tokens: Tokens
    receipt: int
    start_pages: int
    full: npt.NDArray[np.int32]
    loading: TransferId | None = None


@define
class Counted:
    """What a rank did."""

    requests: int = 0
    rejected: int = 0
    load_backs: int = 0
    failed_loads: int = 0
    settled: int = 0
    failed: int = 0
    calls: int = 0


class RankServer:
    """The scheduler of one rank."""

    def __init__(self, cache: PrefixCache, page_size: int) -> None:
        self._cache, self._page = cache, page_size
        self._running: deque[Running] = deque()
        self._ends: dict[TransferId, TransferStatus] = {}
        self._digest = blake2b(digest_size=8)
        self.counted = Counted()

    def look(self) -> None:
        """Add all nodes to the digest, with their ids, slots and locks."""
        self._note(self._cache.tree.nodes())

    def decisions(self) -> int:
        """A digest of every answer so far."""
        return int.from_bytes(self._digest.digest(), "big", signed=True)

    def serve(self, tokens: Tokens) -> None:
        """Start a request, and finish the oldest one if enough are running."""
        self.counted.requests += 1
        self._settle(self._call("poll"))
        if len(self._running) == AT_ONCE:
            self._finish(self._running.popleft())
        self._start(tokens[: len(tokens) // self._page * self._page])
        self._call("take_events")

    def drain(self) -> None:
        """Finish all requests, and settle all copies."""
        while self._running:
            self._finish(self._running.popleft())
        self._settle(self._call("flush"))
        self._call("take_events")
        self._note(self._cache.free_slot_counts())

    def _start(self, tokens: Tokens) -> None:
        found = self._call("match", tokens)
        receipt = self._cache.lock(tokens, pages=found.prefix_pages)  # Its number is local.
        start, loading = found.device_pages, None
        if found.prefix_pages > found.device_pages:
            loaded = self._call("load_back", tokens[: found.prefix_pages * self._page])
            if loaded.transfer_id is not None:
                self.counted.load_backs += 1
                start, loading = found.prefix_pages, loaded.transfer_id
        pages = len(tokens) // self._page - start
        try:
            full = self._allocate(pages)
        except OutOfSlots:
            self.counted.rejected += 1
            self._await(loading)
            self._cache.unlock(receipt)
            return
        self._running.append(Running(tokens, receipt, start, full, loading))

    def _allocate(self, pages: int) -> npt.NDArray[np.int32]:
        short = pages - self._cache.free_slot_counts()[0]
        if short > 0:
            self._call("evict", short)
        slots: tuple[npt.NDArray[np.int32], ...] = self._call("allocate", pages)
        return slots[0]

    def _finish(self, request: Running) -> None:
        self._await(request.loading)
        try:
            self._call("insert", request.tokens, request.start_pages, request.full)
        except TransferPending as pending:
            self._await(pending.transfer_id)
            self._finish(request)
            return
        except CacheError:
            # Its load has failed: the pages before its own are not there.
            self.counted.failed_loads += 1
            self._call("free", request.full)
        self._cache.unlock(request.receipt)

    def _await(self, transfer_id: TransferId | None) -> None:
        """Poll until a load has settled; all ranks poll as often, since all settle it at once."""
        while transfer_id is not None and transfer_id not in self._ends:
            self._settle(self._call("poll"))

    def _settle(self, settled: list[tuple[TransferId, TransferStatus]]) -> None:
        self._ends.update(settled)
        self.counted.settled += len(settled)
        self.counted.failed += sum(status is not TransferStatus.DONE for _, status in settled)

    def _call(self, name: str, *args: object):  # type: ignore[no-untyped-def] # noqa: ANN202
        self.counted.calls += 1
        try:
            answer = getattr(self._cache, name)(*args)
        except CacheError as refusal:
            self._note((name, str(refusal)))
            raise
        self._note(name)
        self._note(
            [getattr(answer, field) for field in FIELDS_OF[name]] if name in FIELDS_OF else answer
        )
        return answer

    def _note(self, value: object) -> None:
        """Add a value to the digest."""
        if isinstance(value, np.ndarray):
            self._digest.update(value.tobytes())
        elif isinstance(value, (list, tuple)):
            for each in value:
                self._note(each)
        elif type(value).__name__ == "Event":
            self._note([getattr(value, field) for field in EVENT_FIELDS])
        else:
            self._digest.update(repr(value).encode())
