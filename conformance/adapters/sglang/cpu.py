"""What SGLang does on a GPU only, done on the CPU.

The environment has stand-ins for what cannot be imported (`kvcanon peers make` lists them). What
is here concerns objects of the release itself: host memory is not pinned, and pools that are put
on "cuda" by a literal are put on the CPU.

What readers get wrong: nothing of a cache is replaced here, only where its memory lies.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module

_HOST_POOLS = (
    "sglang.srt.mem_cache.memory_pool_host",
    "sglang.srt.mem_cache.pool_host.base",
    "sglang.srt.mem_cache.pool_host.common",
    "sglang.srt.mem_cache.host_memory",
)


@cache
def prepare() -> None:
    """Let host pools be made without a GPU, once for this process."""
    import_module("torch").set_num_threads(1)
    for place in _HOST_POOLS:
        try:
            module = import_module(place)
        except ModuleNotFoundError:
            continue
        by_device = getattr(module, "ALLOC_MEMORY_FUNCS", None)
        if by_device is not None:
            usual = by_device["cpu"]
            by_device["cpu"] = _unpinned(usual)


def _unpinned(allocate: object) -> object:
    def allocate_unpinned(*arguments: object, **named: object) -> object:
        return allocate(*arguments, **{**named, "pin_memory": False})  # type: ignore[operator]

    return allocate_unpinned
