"""The scheduler: a few requests side by side, a piece of each in every step.

A request is *matched* and what was found *locked*; what is on the host only is *loaded back*. Pages
that are not there get slots by *allocate*, after *evict* where too few are free. Whole pages that
were computed go to the tree by *insert*. When decoding has moved past the window that the receipt
holds, *unlock_window* lets others have it; at the end come *unlock* and *free*.

What readers get wrong: a match is good until the next call and no longer. It is locked at once, or
a call that makes room for another request takes the slots that it named.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from kvcanon.optimized import PrefixCache
from kvcanon.optimized.threaded_engine import ThreadedEngine
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import OutOfSlots, TransferPending
from kvcanon.spec.types import DEFAULT_NAMESPACE, Namespace, TransferId
from model import Decoder
from paging import NO_SLOT, LoadFailed, PagedMemory, PageTable, make_pools
from request import Request, SlotArray, Tokens, slot_array


class Scheduler:
    """Serves requests with a decoder and a cache."""

    def __init__(
        self,
        decoder: Decoder,
        config: CacheConfig,
        transfers: ThreadedEngine,
        *,
        running_requests: int = 4,
        step_pages: int = 4,
    ) -> None:
        self.decoder = decoder
        self.page_size = config.page_size
        self.pools = make_pools(config, decoder.shape)
        self.transfers = transfers
        self.cache = PrefixCache(config, self.pools, transfers)
        self.running_requests = running_requests
        self.step_pages = step_pages
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        """The oldest first."""
        self.crowded = False
        """Whether one was pushed out, and none has left since of itself."""

    def submit(
        self, prompt: Sequence[int], answer_tokens: int, namespace: Namespace = DEFAULT_NAMESPACE
    ) -> Request:
        """Take a request; `step` serves it."""
        end_tokens = len(prompt) + answer_tokens
        if not prompt or answer_tokens < 1 or end_tokens > self.decoder.shape.max_tokens:
            raise ValueError(f"{answer_tokens} tokens after {len(prompt)} cannot be served")
        memory = PagedMemory(self.pools, self.decoder.shape, self.cache)
        request = Request([*prompt], end_tokens, self.cache.namespace(namespace), memory)
        self.waiting.append(request)
        return request

    def run(self) -> None:
        """Serve all there is."""
        while self.waiting or self.running:
            self.step()

    def step(self) -> None:
        """Compute a few pages, or one token, of each running request."""
        if self.running:
            self.cache.poll()
        else:
            self.cache.flush()  # There is nothing to do but to wait for copies.
        while self.waiting and len(self.running) < self.running_requests and not self.crowded:
            if not self._start(self.waiting[0]):
                break
            self.running.append(self.waiting.popleft())
        for request in list(self.running):
            if request in self.running:  # Another may have pushed it out.
                self._advance(request)

    # ----------------------------------------------------------------------------------------------
    # What need not be computed
    # ----------------------------------------------------------------------------------------------

    def _start(self, request: Request) -> bool:
        """Hold what is cached of a prompt; False while some of it is on its way for another."""
        # The last token is computed whatever is cached: its logits choose the next token.
        key = request.key(len(request.tokens) - 1)
        found = self.cache.match(key, request.namespace)
        if found.pending:
            return False
        request.loaded_pages, request.loaded_window_pages = 0, 0
        to_load = request.may_load and found.prefix_pages > found.device_pages
        if not (to_load and self._load(request, key, found.prefix_pages)):
            self._hold(request, key)
        request.prompt_tokens = len(request.tokens)
        request.computed_tokens = request.tree_pages * self.page_size
        request.reused_pages = request.tree_pages
        return True

    def _hold(self, request: Request, key: Tokens) -> None:
        """Lock the pages of a key that are on the device, in place of what the request held."""
        found = self.cache.match(key, request.namespace)
        receipt = self.cache.lock(key, request.namespace, found.device_pages)
        self._unlock(request)
        self._take_up(request, receipt, found.full, found.swa)

    def _load(self, request: Request, key: Tokens, pages: int) -> bool:
        """Begin to copy pages back from the host; False where they are better computed."""
        receipt = self.cache.lock(key, request.namespace, pages)
        loaded = self.cache.load_back(key[: pages * self.page_size], namespace=request.namespace)
        if loaded.transfer_id is None:
            self.cache.unlock(receipt)
            return False
        # There the bytes will be; the memory waits for each layer before it is read.
        self._take_up(request, receipt, loaded.full, loaded.swa)
        request.memory.loading = loaded.transfer_id
        request.loaded_pages, request.loaded_window_pages, _ = loaded.loading
        return True

    def _take_up(self, request: Request, receipt: int, full: SlotArray, swa: SlotArray) -> None:
        """Read from now on what a receipt holds: all full slots, and those of one window.

        There may be window slots further up. Nobody needs them, and so nothing holds them.
        """
        request.receipt = receipt
        request.tree_pages = len(full)
        window = swa[-self.cache.config.window_pages :]
        request.table.begin_with(full.tolist(), window.tolist())

    # ----------------------------------------------------------------------------------------------
    # What is computed
    # ----------------------------------------------------------------------------------------------

    def _advance(self, request: Request) -> None:
        """Compute up to `step_pages` pages of a prompt, or the latest token of an answer."""
        decoding = request.computed_tokens >= request.prompt_tokens
        for _ in range(self.step_pages):
            if not self._compute_page(request):
                return
            if request.computed_tokens == len(request.tokens):
                request.tokens.append(int(request.logits[len(request.tokens) - 1].argmax()))
                break
        if request.done:
            self._leave(request)
        elif decoding:
            self._pass_window(request)
        else:
            self._share(request)

    def _compute_page(self, request: Request) -> bool:
        """Compute what is known of the next page; False where the request had to leave."""
        first = request.computed_tokens
        page = first // self.page_size
        if page == len(request.table.full) and not self._allocate_page(request):
            return False
        tokens = request.tokens[first : (page + 1) * self.page_size]
        try:
            logits = self.decoder.forward(tokens, first, request.memory)
        except LoadFailed:
            request.may_load = False  # What is on the host is computed again this time.
            self._retract(request)
            return False
        if request.memory.loading is not None:
            self._settle(request.memory.loading)
            request.memory.loading = None
        request.logits.update(enumerate(logits, start=first))
        request.computed_tokens += len(tokens)
        return True

    def _allocate_page(self, request: Request) -> bool:
        """Give a request the slots of its next page; False where it had to leave instead.

        Raises:
            OutOfSlots: it has all slots that there are.
        """
        while not self._make_room() and len(self.running) > 1:
            youngest = self.running[-1]
            self._retract(youngest)
            self.crowded = True
            if youngest is request:
                return False
        try:
            full, swa, _ = self.cache.allocate(1, 1)  # A pair: the same page in either pool.
        except OutOfSlots:
            self._leave(request)
            raise
        request.table.full += full.tolist()
        request.table.swa += swa.tolist()
        return True

    def _make_room(self) -> bool:
        """See that a slot is free in each pool, by eviction where there is none."""
        for settle in (self.cache.poll, self.cache.flush):
            settle()  # A copy in flight holds the pages that it copies.
            full, swa, _ = self.cache.free_slot_counts()
            self.cache.evict(int(full == 0), int(swa == 0))
            full, swa, _ = self.cache.free_slot_counts()
            if full and swa:
                return True
        return False

    # ----------------------------------------------------------------------------------------------
    # What is handed over and given back
    # ----------------------------------------------------------------------------------------------

    def _share(self, request: Request) -> None:
        """Hand over the pages that are computed, so that others find them, and hold them there.

        Some may have been in the tree by now. Then ours came free, and a match names theirs.
        """
        self._insert(request)
        self._hold(request, request.key(request.tree_pages * self.page_size))

    def _insert(self, request: Request) -> None:
        pages = request.computed_tokens // self.page_size
        full, swa = request.own_slots(pages)
        counted = min(request.counted_pages, pages)
        key = request.key(pages * self.page_size)
        while True:
            try:
                self.cache.insert(
                    key,
                    request.tree_pages,
                    full,
                    swa,
                    namespace=request.namespace,
                    counted_pages=counted,
                )
                break
            except TransferPending as refused:  # Another loads pages that we have computed.
                self._settle(refused.transfer_id)
        request.tree_pages = request.counted_pages = pages

    def _settle(self, transfer_id: TransferId) -> None:
        """Wait for a copy, and let the cache take note of it."""
        self.transfers.wait(transfer_id)
        self.cache.poll()

    def _pass_window(self, request: Request) -> None:
        """Give back the window data that no token of the answer can see any more."""
        seen_from = request.computed_tokens - self.decoder.shape.window_tokens
        passed_pages = max(0, seen_from) // self.page_size
        swa = request.table.swa
        own = [slot for slot in swa[request.tree_pages : passed_pages] if slot != NO_SLOT]
        self.cache.free(slot_array(()), slot_array(own))
        swa[:passed_pages] = [NO_SLOT] * passed_pages
        if request.receipt is not None and passed_pages >= request.tree_pages:
            self.cache.unlock_window(request.receipt)  # A second time it does nothing.

    def _unlock(self, request: Request) -> None:
        if request.receipt is not None:
            self.cache.unlock(request.receipt)
            request.receipt = None

    def _leave(self, request: Request) -> None:
        """Hand over the pages that are computed, and give back all else."""
        if request.memory.loading is None:
            self._insert(request)
        self._unlock(request)
        self.cache.free(*request.own_slots())
        request.memory.table = PageTable()
        request.memory.loading = None
        self.running.remove(request)
        self.crowded = False

    def _retract(self, request: Request) -> None:
        """Let a request wait again, before all others; what it computed may still be there then."""
        self._leave(request)
        request.computed_tokens = request.tree_pages = 0
        request.retractions += 1
        self.waiting.appendleft(request)
