"""Makes GPU-only parts of SGLang run on the CPU.

The environment replaces packages that cannot be imported (`kvcanon lab peers make` lists them).
This module patches the release itself: host memory is not pinned, none of it is kept free for
others, and host pools use the copies of the stand-in for `sgl_kernel`, which SGLang imports only
on a machine with a GPU.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from kvcanon.conformance.errors import UsageError

_MEM_CACHE = "sglang.srt.mem_cache"
_HOST_POOLS = (
    "memory_pool_host",
    "host_memory",
    "pool_host.base",
    "pool_host.common",
    "pool_host.mamba",
    "pool_host.mha",
    "pool_host.mla",
)
RESERVE = "HICACHE_HOST_MEMORY_RESERVE_BYTES"
"""What SGLang leaves free of the machine's memory: 10 GiB, which a small machine does not have."""
COPIES = (
    "transfer_kv_direct",
    "transfer_kv_all_layer_direct_lf_pf",
    "transfer_kv_per_layer_direct_pf_lf",
)


@cache
def prepare() -> None:
    """Let host pools work without a GPU; done once per process. Raises: UsageError."""
    try:
        torch: Any = import_module("torch")
        torch.set_num_threads(1)
        kernels = import_module("sgl_kernel.kvcacheio")
    except ModuleNotFoundError as error:
        raise UsageError(
            f"SGLang cannot be used here: {error}; `kvcanon lab peers make` makes an environment "
            "that has it, or a stand-in"
        ) from error
    for place in _HOST_POOLS:
        try:
            module = import_module(f"{_MEM_CACHE}.{place}")
        except ModuleNotFoundError:
            continue
        for name in COPIES:
            setattr(module, name, getattr(kernels, name))
        if hasattr(module, RESERVE):
            setattr(module, RESERVE, 0)
        by_device = getattr(module, "ALLOC_MEMORY_FUNCS", None)
        if by_device is not None:
            by_device["cpu"] = _unpinned(by_device["cpu"])
        pool = getattr(module, "HostKVCache", None)
        if pool is not None and not torch.cuda.is_available():
            # Storage reads a page into memory of its own, which is to be pinned as the pool's is.
            pool.pin_memory = property(lambda _: False, lambda *_: None)
    _compile_hashes()


@cache
def be_alone() -> None:
    """Make a process group of this process alone, once: HiRadixCache needs its size."""
    distributed = import_module("torch.distributed")
    if not distributed.is_initialized():
        store = distributed.HashStore()
        distributed.init_process_group("gloo", store=store, rank=0, world_size=1)


def _compile_hashes() -> None:
    """Compile the page hashing of later releases now; they do it at first use.

    Raises: UsageError.
    """
    try:
        module = import_module(f"{_MEM_CACHE}.cpp_utils.native_hash")
    except ModuleNotFoundError:
        return
    try:
        module.get_native_hash(array("q", [0]), None, 1)
    except RuntimeError as error:
        raise UsageError(
            f"SGLang compiles its page hashes, and that failed: {error.__cause__ or error}; it "
            "takes a C++ compiler, ninja and the headers of OpenSSL"
        ) from error


def _unpinned(allocate: Callable[..., object]) -> Callable[..., object]:
    def allocate_unpinned(*arguments: object, **named: object) -> object:
        return allocate(*arguments, **{**named, "pin_memory": False})

    return allocate_unpinned
