"""Translates request operations to the calls that MAX's scheduler makes for them.

A forward pass is two calls with the pass between them: `alloc` gives a request pages, and `step`
puts the pages that the pass has filled into the cache. The judge fills the pages of a table before
its next call. MAX never serves a whole prompt from its cache: the last token is always computed.

With full attention alone both calls are made within one operation here, so that a page is found as
soon as it is filled. With a window or a state, `step` also frees what the pass still reads: what
has left the window, and the state before. So the answer is the table between the two calls; `step`
is called when the request is used next, or ends, as if the pass took that long.

A request grows as in chunked prefill: the next chunk of its prompt is computed in one pass.

MAX separates prompts by `cache_salt` alone. It refuses LoRA adapters together with a prefix cache,
and has no field for an application's key, so all of a namespace goes into the salt. An empty salt
is no salt.
"""

from __future__ import annotations

import numpy as np
from attrs import Factory, define

from kvcanon.conformance.adapter_parts.running_requests import RunningRequests
from kvcanon.conformance.adapter_parts.token_slots import extra_key_of, tokens_of
from kvcanon.conformance.engines.installed_names import EngineObject
from kvcanon.conformance.engines.max.factory import (
    LEAVES,
    LONGEST_TOKENS,
    MAX,
    make_jenga,
    make_paged,
)
from kvcanon.conformance.protocol.request import Admitted, RequestId
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import OutOfSlots
from kvcanon.spec.types import FULL, MAMBA, Key, Slots

NEXT_TOKEN = 0
"""The token that each pass puts out. No request of the judge goes on with it."""


@define(eq=False)
class MaxCache:
    """A `RequestCache` around one of MAX's managers."""

    config: CacheConfig
    manager: EngineObject
    first_page: int
    """The number of the manager's first page; lower numbers are the null block's."""
    running: RunningRequests[EngineObject | None] = Factory(RunningRequests)
    """The requests that run; None for a prompt without pages, which MAX has no request for."""

    def admit(self, request_id: RequestId, key: Key) -> Admitted:
        """Admit a request with its prefix hit, allocate the rest, and compute it."""
        with self.running.admission(request_id, None, lambda _: None):
            return self._admitted(request_id, key)

    def extend(self, request_id: RequestId, key: Key) -> Slots:
        """Compute the pages that a request has grown by."""
        before = self.running.get(request_id)
        if before is None:
            return self._admitted(request_id, key).slots
        self._check_room(key, before)
        self._end_pass(before)
        request = _context(request_id, key)
        if len(request.tokens) == before.tokens.processed_length:
            return self._table(before)
        # MAX knows requests by their id: to it, this is the same one.
        request.tokens.skip_processing(before.tokens.processed_length)
        self.manager.alloc(request)
        self._begin_pass(request)
        self.running.end(request_id)
        self.running.start(request_id, request)
        return self._table(request)

    def finish(self, request_id: RequestId) -> None:
        """End a request; MAX has no other way to end it."""
        request = self.running.end(request_id)
        if request is not None:
            self._end_pass(request)
            self.manager.release(request)

    abort = finish

    def reset(self) -> None:
        """Empty the cache, except for pages of requests."""
        self.manager.reset_prefix_cache()

    def _admitted(self, request_id: RequestId, key: Key) -> Admitted:
        """Make the context of a request that has none. Raises: OutOfSlots; it has none still."""
        if not len(key):
            return Admitted(0, Slots())
        request = _context(request_id, key)
        self.manager.claim(request)
        try:
            self.manager.alloc(request)
        except MAX["InsufficientBlocksError"] as refusal:
            free = self.manager.block_count().free
            self.manager.release(request)
            raise OutOfSlots("pages on GPU", len(key), free) from refusal
        self._begin_pass(request)
        self.running.end(request_id)
        self.running.start(request_id, request)
        # None where MAX looks nothing up, as for a prompt of one token.
        reused_tokens = request.cached_prefix_length or 0
        return Admitted(reused_tokens // self.config.page_size, self._table(request))

    def _check_room(self, key: Key, before: EngineObject) -> None:
        """Check that there are free pages for growth, by MAX's own count. Raises: OutOfSlots.

        MAX keeps the hashes of a chunk that it refuses: the tokens of its requests never change.
        The judge may grow the request by other tokens later, so that MAX must not see these. If it
        has too few pages after all, its error is a finding.
        """
        components = self.config.components
        pages = len(key) - before.tokens.prompt_length // self.config.page_size
        needed = pages * sum(each is not MAMBA for each in components) + (MAMBA in components)
        free = self.manager.block_count().free
        if pages and needed > free:
            raise OutOfSlots("pages on GPU", needed, free)

    def _begin_pass(self, request: EngineObject) -> None:
        """Begin a forward pass, and end it at once where that frees nothing that it reads."""
        if self.config.components == (FULL,):
            self._end_pass(request)

    def _end_pass(self, request: EngineObject) -> None:
        """Do what MAX does after a forward pass over all tokens of a request, unless it is done."""
        if not request.tokens.generated_length:
            request.update(NEXT_TOKEN)
            self.manager.step(request)

    def _table(self, request: EngineObject | None) -> Slots:
        """The block table of a request; slots begin at 0."""
        slots: dict[str, tuple[int, ...]] = {}
        rows = self.manager.get_req_blocks_per_leaf(request) if request is not None else {}
        for leaf, pages in rows.items():
            component = next(each for each, name in LEAVES.items() if leaf.startswith(name))
            # Null pages stand for what has left the window.
            gone = max(
                (at for at, page in enumerate(pages, 1) if page < self.first_page), default=0
            )
            slots[component.value] = tuple(page - self.first_page for page in pages[gone:])
        if request is not None and MAMBA in self.config.components:
            # A request goes on in the successor of the state that the pass computes in.
            successor = self.manager.groups[LEAVES[MAMBA]].successors.get(request.request_id)
            page = successor.bid - self.first_page if successor is not None else slots["mamba"][-1]
            slots["mamba"] = (page,)
        return Slots(**slots)


def _context(request_id: RequestId, key: Key) -> EngineObject:
    """Make MAX's request, whose prompt is a key of one page or more."""
    return MAX["TextContext"](
        request_id=MAX["RequestID"](str(request_id)),
        max_length=2 * LONGEST_TOKENS,
        tokens=MAX["TokenBuffer"](np.array(tokens_of(key), dtype=np.int64)),
        cache_salt=extra_key_of(key.namespace),
    )


def paged_cache(config: CacheConfig) -> MaxCache:
    """Make a cache around the paged manager."""
    return MaxCache(config, make_paged(config), first_page=0)


def jenga_cache(config: CacheConfig) -> MaxCache:
    """Make a cache around the jenga manager."""
    return MaxCache(config, make_jenga(config), first_page=1)
