"""Prepares a server process to do without SGLang's kernels, and plants a fault if it is told to.

SGLang calls `register` in every process of a server. Nothing here changes how a core of SGLang's
decides: host memory is not pinned and copied by index (`engines.sglang.cpu_stand_ins`), and the
attention of sliding layers reads the slots that it wrote. SGLang 0.5.23's `torch_native` backend
writes them at slots of the window pool but reads them at slots of the full pool.

It also registers another core, `mended`: SGLang's Python core with kvcanon's rules where the two
differ (`mended_core`), so that kvcanon's can be compared with it.

Where `KVCANON_SERVING_CLOCK` names a file, the server is under load: it counts there how long the
scheduler spends in its cache (`cache_clock`), and computes the attention of new tokens alone
(`short_attention`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from kvcanon.conformance.engines.sglang.cpu_stand_ins import prepare
from kvcanon.lab.releases.mended.mended_core import register_mended
from kvcanon.lab.servers.cache_clock import CLOCK, time_calls
from kvcanon.lab.servers.core_faults import FAULTS, faulty_factory
from kvcanon.lab.servers.server_setup import FAULT
from kvcanon.lab.servers.short_attention import attend_new_tokens

_POOLS = "sglang.srt.mem_cache.memory_pool"
_BACKEND = "sglang.srt.layers.attention.torch_native_backend"
_EXTEND = "_run_sdpa_forward_extend"
_CACHE = "sglang.srt.mem_cache.unified_radix_cache"
_REGISTRY = "sglang.srt.mem_cache.unified_cache.tree_core_registry"


def register() -> None:
    """What SGLang calls. Raises: KeyError, for an unknown fault; OSError, for a missing clock."""
    prepare()
    # On a GPU it would compile a kernel that stores keys and values.
    pools: Any = import_module(_POOLS)
    pools.can_use_store_cache = lambda *_: False
    clock = os.environ.get(CLOCK)
    if clock:
        setattr(import_module(_BACKEND).TorchNativeAttnBackend, _EXTEND, attend_new_tokens)
        time_calls(import_module(_CACHE).UnifiedRadixCache, Path(clock))
    read_window_slots()
    register_mended()
    name = os.environ.get(FAULT)
    if name:
        plant(name)


def read_window_slots() -> None:
    """Let attention of sliding layers read keys and values at slots of the window pool."""
    backend = import_module(_BACKEND).TorchNativeAttnBackend
    for name in (_EXTEND, "_run_sdpa_forward_decode"):
        setattr(backend, name, _translated(getattr(backend, name)))


def plant(name: str) -> None:
    """Plant a fault into every tree core that the server makes."""
    registry: Any = import_module(_REGISTRY)
    registry.create_tree_core = faulty_factory(registry.create_tree_core, FAULTS[name])
    # The cache imports the function by name.
    cache: Any = import_module(_CACHE)
    if hasattr(cache, "create_tree_core"):
        cache.create_tree_core = registry.create_tree_core


def _translated(run: Callable[..., Any]) -> Callable[..., Any]:
    """The attention of a step, for sliding layers with a table of window slots.

    Arguments six and seven are the table of slots by request, and the requests of the step.
    """

    def translated(
        self: Any,  # noqa: ANN401  # SGLang's own classes have no types here.
        *given: Any,  # noqa: ANN401
        sliding_window_size: int | None = None,
        **named: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        if sliding_window_size is not None and self.use_sliding_window_kv_pool:
            torch = import_module("torch")
            rows = given[4][given[5]]
            table = self.token_to_kv_pool.translate_loc_from_full_to_swa(rows.reshape(-1).long())
            among = torch.arange(len(rows))
            given = (*given[:4], table.reshape(rows.shape), among, *given[6:])
        return run(self, *given, sliding_window_size=sliding_window_size, **named)

    return translated
