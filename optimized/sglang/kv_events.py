"""SGLang's KV events from the native log: one BlockStored or BlockRemoved a stretch of pages."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sglang.srt.disaggregation.kv_events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    StorageMedium,
    kv_event_namespace_seed,
    namespaced_block_hash,
)
from sglang.srt.mem_cache.cache_init_params import CacheInitParams

from kvcanon.optimized import _core
from kvcanon.optimized.sglang.native_tree import Scope, TreeOfNodes

HASH_BYTES, SENT_BYTES = 32, 8
"""Bytes of a page hash, and how many of them SGLang sends."""
MEDIA = {"GPU": StorageMedium.GPU, "CPU_PINNED": StorageMedium.CPU}


class SentEvents:
    """What SGLang's controller calls `kv_events`.

    Hashes and tokens come from the native core when the events are taken, so that no other call
    pays for them.
    """

    def __init__(
        self, params: CacheInitParams, native: Callable[[], TreeOfNodes], *, bigram: bool
    ) -> None:
        self.enabled: bool = params.enable_kv_cache_events
        self._native = native
        self._bigram = bigram
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
        for event in native.core.take_events():
            sent = self._sent(event, native, session_id)
            # The cache is cleared when it is made, and again by SGLang's first reset.
            if isinstance(sent, AllBlocksCleared) and self._ends_cleared():
                continue
            self._taken.append(sent)

    def record_all_cleared(self) -> None:
        """Do nothing: the native core emits this when it forgets its tree."""

    def _ends_cleared(self) -> bool:
        return bool(self._taken) and isinstance(self._taken[-1], AllBlocksCleared)

    def _sent(self, event: _core.Event, native: TreeOfNodes, session_id: str | None) -> object:
        if event.kind == "cleared":
            return AllBlocksCleared()
        scope = native.scope(event.namespace)
        seed = self._seed(scope)
        hashes = _ids(event.hashes)
        if seed is not None:
            hashes = [namespaced_block_hash(each, namespace_seed=seed) for each in hashes]
        medium = MEDIA[event.medium]
        if event.kind == "removed":
            return BlockRemoved(block_hashes=hashes, medium=medium)
        parent = None
        if event.parent_hash is not None:
            (first,) = _ids(event.parent_hash)
            parent = namespaced_block_hash(first, namespace_seed=seed)
        tokens = event.tokens.reshape(-1)
        units: object = tokens.tolist()
        if self._bigram:
            units = [tuple(pair) for pair in tokens.reshape(-1, 2).tolist()]
        return BlockStored(
            block_hashes=hashes,
            parent_block_hash=parent,
            token_ids=units,
            block_size=native.settings.page_size,
            lora_id=None,
            medium=medium,
            cache_salt=scope[1],
            session_id=session_id,
            lora_name=self._lora_name(scope),
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


def _ids(hashes: bytes) -> list[int]:
    """The first 64 bits of each page hash, as SGLang sends them."""
    words = np.frombuffer(hashes, dtype=">i8").reshape(-1, HASH_BYTES // SENT_BYTES)
    found: list[int] = words[:, 0].tolist()
    return found
