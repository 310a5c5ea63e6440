"""Calls of buffers and external stores, which this core does not offer.

The flags that lead to them are refused when the server starts. So these calls are errors of the
server, and say which flag they belong to.
"""

from __future__ import annotations

from typing import NoReturn

from sglang.srt.mem_cache.unified_cache.unified_tree_core_interface import UnifiedTreeCoreInterface

from kvcanon.optimized.sglang.start_checks import refuse

BUFFER = "--hicache-host-memory-mode buffer_only"
LINKER = "--enable-unified-cache-external-linker"


class NotOffered(UnifiedTreeCoreInterface):  # type: ignore[misc] # SGLang has no types here.
    """The part of the core that refuses. Every method raises ValueError."""

    @property
    def enable_external_cache_linker(self) -> bool:
        """Whether there is an external store: never."""
        return False

    @enable_external_cache_linker.setter
    def enable_external_cache_linker(self, enabled: bool) -> None:
        if enabled:
            self._no_linker()

    def node_by_id(self, node_id: int) -> NoReturn:
        """Refuse: nodes are in the native core."""
        del node_id
        refuse("a feature that reads tree nodes", "its nodes are in the native core")

    def set_host_memory_buffer_only(self) -> NoReturn:
        """Refuse a host tier that is a buffer."""
        refuse(BUFFER, "its host tier is a cache")

    def _no_buffer(self, *_args: object, **_options: object) -> NoReturn:
        """Refuse a call of the buffer mode."""
        refuse(BUFFER, "its host tier is a cache")

    def _no_linker(self, *_args: object, **_options: object) -> NoReturn:
        """Refuse a call of an external store."""
        refuse(LINKER, "it copies to the host, and from there to storage")

    snapshot_buffer_backup = _no_buffer
    validate_buffer_backup = _no_buffer
    buffer_backup_pool_keys = _no_buffer
    match_full_device_prefix = _no_buffer
    inc_full_pin = _no_buffer
    dec_full_pin = _no_buffer
    swa_tombstone_ranges = _no_buffer
    attach_swa_window = _no_buffer
    build_external_linker_offload_transfers = _no_linker
    mark_external_cache_stored_path = _no_linker
    mark_external_linker_offload_pending = _no_linker
    finish_external_linker_offload = _no_linker
    dec_window_lock_only = _no_linker
    adjust_component_size = _no_linker
