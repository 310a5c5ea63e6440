"""The scheduler: a few requests side by side, a piece of each in every step.

A prompt is *matched* and the prefix that was found is *locked*; pages that are on the host only are
*loaded back*. Other pages get slots by *allocate*, after *evict* if too few are free. Whole
computed pages go to the tree by *insert*. When decoding has moved past the window that the receipt
holds, *unlock_window* makes it evictable; *unlock* and *free* end a request.

What readers get wrong: a match is valid until the next call only. Lock it at once: an eviction for
another request may take the slots that it returned.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from kvcanon.optimized import PrefixCache
from kvcanon.optimized.pools import Pools
from kvcanon.optimized.threaded_engine import ThreadedEngine
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import OutOfSlots, TransferPending
from kvcanon.spec.types import DEFAULT_NAMESPACE, Namespace, TransferId
from model import Decoder
from paging import NO_SLOT, LoadFailed, PagedMemory, PagedTensors, PageTable, allocate_tensors
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
        tensors: PagedTensors | None = None,
    ) -> None:
        self.decoder = decoder
        self.page_size = config.page_size
        self.tensors = tensors or allocate_tensors(config, decoder.shape)
        self.pools = Pools(config, tensors=self.tensors.given)
        self.cache = PrefixCache(config, self.pools, transfers)
        self.running_requests = running_requests
        self.step_pages = step_pages
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        """The oldest first."""
        self.crowded = False
        """Whether a request was retracted, and none has finished since."""

    def submit(
        self, prompt: Sequence[int], answer_tokens: int, namespace: Namespace = DEFAULT_NAMESPACE
    ) -> Request:
        """Queue a request; `step` serves it."""
        end_tokens = len(prompt) + answer_tokens
        if not prompt or answer_tokens < 1 or end_tokens > self.decoder.shape.max_tokens:
            raise ValueError(f"{answer_tokens} tokens after {len(prompt)} cannot be served")
        memory = PagedMemory(self.tensors, self.decoder.shape, self.cache)
        request = Request([*prompt], end_tokens, self.cache.namespace(namespace), memory)
        self.waiting.append(request)
        return request

    def run(self) -> None:
        """Serve all requests."""
        while self.waiting or self.running:
            self.step()

    def step(self) -> None:
        """Compute a few pages, or one token, of each running request."""
        if self.running:
            self.cache.poll()
        else:
            self.cache.flush()  # Every request waits for copies.
        while self.waiting and len(self.running) < self.running_requests and not self.crowded:
            if not self._start(self.waiting[0]):
                break
            self.running.append(self.waiting.popleft())
        for request in list(self.running):
            if request in self.running:  # Another request may have retracted it.
                self._advance(request)

    # ----------------------------------------------------------------------------------------------
    # Reuse
    # ----------------------------------------------------------------------------------------------

    def _start(self, request: Request) -> bool:
        """Lock the cached prefix of a prompt; False while another request loads a part of it."""
        # The last token is always computed: its logits choose the next token.
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
        """Lock the pages of a key that are on the device, and release the request's old lock."""
        found = self.cache.match(key, request.namespace)
        receipt = self.cache.lock(key, request.namespace, found.device_pages)
        self._unlock(request)
        self._take_up(request, receipt, found.full, found.swa)

    def _load(self, request: Request, key: Tokens, pages: int) -> bool:
        """Enqueue a load of pages from the host; False if the cache declines it."""
        receipt = self.cache.lock(key, request.namespace, pages)
        loaded = self.cache.load_back(key[: pages * self.page_size], namespace=request.namespace)
        if loaded.transfer_id is None:
            self.cache.unlock(receipt)
            return False
        # The bytes come later; the memory waits for each layer before it reads it.
        self._take_up(request, receipt, loaded.full, loaded.swa)
        request.memory.loading = loaded.transfer_id
        request.loaded_pages, request.loaded_window_pages, _ = loaded.loading
        return True

    def _take_up(self, request: Request, receipt: int, full: SlotArray, swa: SlotArray) -> None:
        """Use the slots that a receipt holds: all full slots, and those of one window.

        A match may return window slots before that window. The receipt does not hold them.
        """
        request.receipt = receipt
        request.tree_pages = len(full)
        window = swa[-self.cache.config.window_pages :]
        request.table.begin_with(full.tolist(), window.tolist())

    # ----------------------------------------------------------------------------------------------
    # Compute
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
        """Compute the known tokens of the next page; False if the request was retracted."""
        first = request.computed_tokens
        page = first // self.page_size
        if page == len(request.table.full) and not self._allocate_page(request):
            return False
        tokens = request.tokens[first : (page + 1) * self.page_size]
        try:
            logits = self.decoder.forward(tokens, first, request.memory)
        except LoadFailed:
            request.may_load = False  # It computes the pages on the host itself this time.
            self._retract(request)
            return False
        if request.memory.loading is not None:
            self._settle(request.memory.loading)
            request.memory.loading = None
        request.logits.update(enumerate(logits, start=first))
        request.computed_tokens += len(tokens)
        return True

    def _allocate_page(self, request: Request) -> bool:
        """Allocate the slots of a request's next page; False if the request was retracted.

        Raises:
            OutOfSlots: the request needs more slots than there are.
        """
        while not self._make_room() and len(self.running) > 1:
            youngest = self.running[-1]
            self._retract(youngest)
            self.crowded = True
            if youngest is request:
                return False
        try:
            full, swa, _ = self.cache.allocate(1, 1)  # A pair: one page in both pools.
        except OutOfSlots:
            self._leave(request)
            raise
        request.table.full += full.tolist()
        request.table.swa += swa.tolist()
        return True

    def _make_room(self) -> bool:
        """Make one slot free in each pool, by eviction if needed; False if that fails."""
        for settle in (self.cache.poll, self.cache.flush):
            settle()  # A copy in flight locks the pages that it copies.
            full, swa, _ = self.cache.free_slot_counts()
            self.cache.evict(int(full == 0), int(swa == 0))
            full, swa, _ = self.cache.free_slot_counts()
            if full and swa:
                return True
        return False

    # ----------------------------------------------------------------------------------------------
    # Insert and free
    # ----------------------------------------------------------------------------------------------

    def _share(self, request: Request) -> None:
        """Insert the computed pages, so that other requests find them, and lock them there.

        The tree frees our slots of pages that it has already, and a match returns its own.
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
            except TransferPending as refused:  # Another request loads pages that we computed.
                self._settle(refused.transfer_id)
        request.tree_pages = request.counted_pages = pages

    def _settle(self, transfer_id: TransferId) -> None:
        """Wait for a copy, and settle it."""
        self.cache.wait(transfer_id)
        self.cache.poll()

    def _pass_window(self, request: Request) -> None:
        """Free the window slots that no later token can see."""
        seen_from = request.computed_tokens - self.decoder.shape.window_tokens
        passed_pages = max(0, seen_from) // self.page_size
        swa = request.table.swa
        own = [slot for slot in swa[request.tree_pages : passed_pages] if slot != NO_SLOT]
        self.cache.free(slot_array(()), slot_array(own))
        swa[:passed_pages] = [NO_SLOT] * passed_pages
        if request.receipt is not None and passed_pages >= request.tree_pages:
            self.cache.unlock_window(request.receipt)  # A second call does nothing.

    def _unlock(self, request: Request) -> None:
        if request.receipt is not None:
            self.cache.unlock(request.receipt)
            request.receipt = None

    def _leave(self, request: Request) -> None:
        """Insert the computed pages, and free everything else."""
        if request.memory.loading is None:
            self._insert(request)
        self._unlock(request)
        self.cache.free(*request.own_slots())
        request.memory.table = PageTable()
        request.memory.loading = None
        self.running.remove(request)
        self.crowded = False

    def _retract(self, request: Request) -> None:
        """Put a request back to the front of the queue; its pages may still be cached then."""
        self._leave(request)
        request.computed_tokens = request.tree_pages = 0
        request.retractions += 1
        self.waiting.appendleft(request)
