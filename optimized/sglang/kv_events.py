"""SGLang's KV events from the native log: one BlockStored or BlockRemoved a stretch of pages."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import Raw
from sglang.srt.disaggregation.kv_events import (
    AllBlocksCleared,
    StorageMedium,
    kv_event_namespace_seed,
    namespaced_block_hash,
)
from sglang.srt.mem_cache.cache_init_params import CacheInitParams

from kvcanon.optimized.native_types import PackedPart
from kvcanon.optimized.sglang.lazy_events import LazyRemoved, LazyStored
from kvcanon.optimized.sglang.native_tree import Scope, TreeOfNodes

REMOVED, CLEARED = 1, 2
"""What happened, as the native core numbers it; 0 is stored."""
MEDIA = (StorageMedium.GPU, StorageMedium.CPU)


class SentEvents:
    """What SGLang's controller calls `kv_events`.

    Hashes and tokens come from the native core when the events are taken, so that no other call
    pays for them.
    """

    def __init__(self, params: CacheInitParams, native: Callable[[], TreeOfNodes]) -> None:
        self.enabled: bool = params.enable_kv_cache_events
        self._native = native
        self._dynamo: bool = params.dynamo_kv_event_format
        self._lora_names = params.kv_event_lora_names
        self._taken: list[object] = []

    def take(self) -> list[object]:
        """The events since the last call, oldest first."""
        if not self.enabled:
            return []
        self.move(None)
        taken, self._taken = self._taken, []
        return taken

    def move(self, session_id: str | None) -> None:
        """Take what the native log has, as stored by a session."""
        if not self.enabled:
            return
        native = self._native()
        taken = self._taken
        for part in native.core.take_event_parts():
            if part[0] != CLEARED:
                taken.append(self._sent(part, native, session_id))
            elif not (taken and isinstance(taken[-1], AllBlocksCleared)):
                # The cache is cleared when it is made, and again by SGLang's first reset.
                taken.append(AllBlocksCleared())

    def record_all_cleared(self) -> None:
        """Do nothing: the native core emits this when it forgets its tree."""

    def _sent(self, part: PackedPart, native: TreeOfNodes, session_id: str | None) -> object:
        kind, number, medium, parent, hashes, tokens = part
        salt = lora_name = None
        if number:
            _, salt = scope = native.scope(number)
            seed, lora_name = self._seed(scope), self._lora_name(scope)
            if seed is not None:
                hashes = _in_namespace(hashes, seed)
                if parent is not None:
                    parent = namespaced_block_hash(parent, namespace_seed=seed)
        if kind == REMOVED:
            return LazyRemoved(Raw(hashes), MEDIA[medium])
        # In the order of SGLang's fields; there is no number of a LoRA.
        return LazyStored(
            Raw(hashes),
            parent,
            Raw(tokens),
            native.settings.page_size,
            None,
            MEDIA[medium],
            salt,
            session_id,
            lora_name,
        )

    def _lora_name(self, scope: Scope) -> str | None:
        names = self._lora_names
        found: str | None = names.resolve(scope[0]) if self._dynamo else names.get(scope[0])
        return found

    def _seed(self, scope: Scope) -> bytes | None:
        """The seed that the hashes of a namespace are hashed with once more; None for none."""
        extra_key, salt = scope
        if not self._dynamo:
            salt = None
            extra_key = extra_key if self._lora_names.get(extra_key) is not None else None
        seed: bytes | None = kv_event_namespace_seed(extra_key=extra_key, cache_salt=salt)
        return seed


def _in_namespace(hashes: bytes, seed: bytes) -> bytes:
    """Hash each of an encoded list of block hashes once more, with the seed of a namespace."""
    ids: list[int] = msgspec.msgpack.decode(hashes)
    hashed = [namespaced_block_hash(each, namespace_seed=seed) for each in ids]
    return msgspec.msgpack.encode(hashed)
