"""Translates request operations to the calls that mlx-lm's server makes for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import Factory, define, field, frozen

from kvcanon.conformance.adapter_parts.arguments import check_evict
from kvcanon.conformance.adapter_parts.running_requests import RunningRequests
from kvcanon.conformance.adapter_parts.token_slots import tokens_of
from kvcanon.conformance.engines.installed_names import EngineObject
from kvcanon.conformance.engines.mlx_lm.layers import (
    MLX,
    add_pages,
    empty_layers,
    read_bytes,
    slots_in,
    write_bytes,
)
from kvcanon.conformance.protocol.request import Admitted, RequestId
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument, OutOfSlots
from kvcanon.spec.operations import Evicted
from kvcanon.spec.types import GPU, MAMBA, Component, Counts, Key, Medium, Slot, Slots

MOST_ENTRIES = 1 << 30
"""Entries are limited by slots here, as in a server by bytes; its own limit is ten entries."""


@frozen(eq=False)
class MlxRequest:
    """A running request: its prompt, and its copy of what was found, with what it computed."""

    key: Key
    layers: Sequence[EngineObject]


@define(eq=False)
class PromptCache:
    """A `RequestCache` around an LRUPromptCache."""

    config: CacheConfig
    entries: EngineObject = field(
        init=False, factory=lambda: MLX["LRUPromptCache"](max_size=MOST_ENTRIES)
    )
    running: RunningRequests[MlxRequest] = Factory(RunningRequests)

    written: dict[tuple[Component, Slot], bytes] = Factory(dict)
    """What was written since the last operation; the arrays get it all at once."""

    def admit(self, request_id: RequestId, key: Key) -> Admitted:
        """Admit a request with a copy of the nearest entry, and compute the rest."""
        self._write_all()
        tokens = tokens_of(key)
        found, rest = self.entries.fetch_nearest_cache(key.namespace, tokens)
        pages, beyond = divmod(len(tokens) - len(rest), self.config.page_size)
        layers = empty_layers(self.config) if found is None else found
        if beyond and not MLX["can_trim_prompt_cache"](layers):
            layers, pages = empty_layers(self.config), 0
        elif beyond:
            MLX["trim_prompt_cache"](layers, beyond)
        request = MlxRequest(key, layers)
        with self.running.admission(request_id, request, lambda _: None):
            self._compute(request, pages)
        return Admitted(pages, self._table(request))

    def extend(self, request_id: RequestId, key: Key) -> Slots:
        """Compute the pages that a request has grown by."""
        self._write_all()
        before = self.running.get(request_id)
        request = MlxRequest(key, before.layers)
        if len(key) > len(before.key):
            self._compute(request, len(before.key))
        self.running.end(request_id)
        self.running.start(request_id, request)
        return self._table(request)

    def finish(self, request_id: RequestId) -> None:
        """End a request, whose copy becomes an entry."""
        self._write_all()
        request = self.running.end(request_id)
        if len(request.key):
            tokens = tokens_of(request.key)
            self.entries.insert_cache(request.key.namespace, tokens, list(request.layers))

    def abort(self, request_id: RequestId) -> None:
        """End a request, and drop its copy."""
        self.running.end(request_id)

    def evict(self, counts: Counts) -> Evicted:
        """Evict entries until enough slots are free, or no entry is left."""
        check_evict(counts)
        before = self._free_counts()
        wanted = [each for each in self.config.components if counts[each]]
        while len(self.entries) and any(
            (self._free_counts() - before)[each] < counts[each] for each in wanted
        ):
            self.entries.trim_to(n_sequences=len(self.entries) - 1)
        return Evicted(self._free_counts() - before)

    def reset(self) -> None:
        """Evict all entries; requests have copies of their own."""
        self.entries.trim_to(n_sequences=0)

    def read(self, component: Component, medium: Medium, slot: Slot) -> bytes:
        """The bytes of a slot, in the newest copy of it."""
        self._write_all()
        for layers in self._all_layers() if medium is GPU else ():
            if slot in slots_in(self.config, layers)[component]:
                return read_bytes(self.config, layers, component, slot)
        raise BadArgument("slot", f"is {slot}; {component} on {medium} holds nothing there")

    def write(self, component: Component, slot: Slot, data: bytes) -> None:
        """Set the bytes of a slot of a running request."""
        self.written[component, slot] = data

    def _write_all(self) -> None:
        """Write what was written into the requests' arrays."""
        for request in self.running.handles() if self.written else ():
            write_bytes(self.config, request.layers, self.written)
        self.written.clear()

    def _compute(self, request: MlxRequest, first_page: int) -> None:
        """Compute the pages of a request from `first_page` on. Raises: OutOfSlots; nothing is."""
        pages = len(request.key) - first_page
        states = min(1, len(request.key))
        asked = {each: states if each is MAMBA else pages for each in self.config.components}
        new = {each: self._take(each, count) for each, count in asked.items()}
        add_pages(self.config, request.layers, first_page, new)

    def _take(self, component: Component, count: int) -> list[Slot]:
        """Find free slots; evicts entries, the next victim first, until there are as many."""
        free = self._free(component)
        while len(free) < count and len(self.entries):
            self.entries.trim_to(n_sequences=len(self.entries) - 1)
            free = self._free(component)
        if len(free) < count:
            raise OutOfSlots(f"{component} on {GPU}", count, len(free))
        return free[:count]

    def _free(self, component: Component) -> list[Slot]:
        """The slots of which no copy is left."""
        used = {
            slot for each in self._all_layers() for slot in slots_in(self.config, each)[component]
        }
        return [slot for slot in range(self.config.capacity(component, GPU)) if slot not in used]

    def _free_counts(self) -> Counts:
        """How many slots are free."""
        return Counts.of({each: len(self._free(each)) for each in self.config.components})

    def _all_layers(self) -> Iterator[Sequence[EngineObject]]:
        """The caches of all requests and entries; mlx-lm has no call that lists its entries."""
        yield from reversed([each.layers for each in self.running.handles()])
        for queue in self.entries._lru._lrus.values():  # noqa: SLF001
            for model, tokens in queue:
                yield self.entries._trie.get(model, tokens).prompt_cache  # noqa: SLF001

    def _table(self, request: MlxRequest) -> Slots:
        """The block table of a request, as its own copy shows it."""
        slots = slots_in(self.config, request.layers)
        return Slots(**{component.value: some for component, some in slots.items()})
