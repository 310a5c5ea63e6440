"""What the core does not offer, refused when the server starts, with the flag that asks for it.

SGLang falls back to its Python core only for its own Rust core. Another core has to refuse: what it
ignores in silence would cost hits, or worse.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from importlib.metadata import version
from typing import TYPE_CHECKING, NoReturn

from kvcanon.sglang_release import OTHERWISE, RELEASE

if TYPE_CHECKING:
    from sglang.srt.mem_cache.cache_init_params import CacheInitParams

logger = logging.getLogger(__name__)
_SAME_RELEASE = re.compile(re.escape(RELEASE) + r"(\.post\d+)?(\+[\w.]+)?")

POLICIES = ("lru", "lfu", "fifo", "mru", "filo", "slru", "priority")
OFFERED_COMPONENTS = ("FULL", "SWA", "MAMBA")
VIRTUAL_POOLS = (
    "UnifiedSWAAllocatorBase",
    "UnifiedMambaTokenToKVPoolAllocator",
    "MultiEndedAllocator",
    "PageInterleavePoolAllocator",
)
"""Allocators whose slots are not the pool's own, or have owners among the ranks."""


def refuse(flag: str, problem: str) -> NoReturn:
    """Refuse a flag, with what to do. Raises: ValueError."""
    raise ValueError(refusal(flag, problem))


def refusal(flag: str, problem: str) -> str:
    """The sentence that refuses a flag."""
    return f"the tree core kvcanon cannot serve with {flag}: {problem}; {OTHERWISE}"


def refuse_what_is_not_offered(params: CacheInitParams) -> None:
    """Refuse what the parameters of a cache ask for and this core lacks. Raises: ValueError."""
    _refuse_release(version("sglang"))
    if params.enable_session_radix_cache:
        refuse("--enable-session-radix-cache", "it does not count what sessions refer to")
    if params.component_registry_override:
        refuse("component_registry_override", "its components are those of SGLang")
    names = [kind.name for kind in params.tree_components or ()]
    other = sorted(set(names) - set(OFFERED_COMPONENTS))
    if other:
        refuse(f"components {', '.join(other)}", "it has full attention, one window, and states")
    if "FULL" not in names:
        refuse("tree_components", "a tree without full attention has no prefixes")
    _refuse_policy(params)
    _refuse_windows(params)
    _refuse_pools(params)
    _refuse_storage()


def _refuse_release(installed: str) -> None:
    """Refuse another release; a build or post release of the tested one may be as it is."""
    if installed == RELEASE:
        return
    problem = ""
    if _SAME_RELEASE.fullmatch(installed):
        from kvcanon.optimized.sglang.interface import differences  # noqa: PLC0415

        other = differences()
        if not other:
            logger.info("sglang %s has the interface of %s", installed, RELEASE)
            return
        problem = f", where {'; '.join(other)}"
    raise ValueError(
        f"the tree core kvcanon is made for sglang=={RELEASE} and this is {installed}{problem}; "
        f"install that release, or {OTHERWISE}"
    )


def _refuse_policy(params: CacheInitParams) -> None:
    policy = params.eviction_policy.lower()
    if policy not in POLICIES:
        refuse(f"--radix-eviction-policy {policy}", f"it has {', '.join(POLICIES)}")
    if params.eviction_policy_config:
        refuse("--radix-eviction-policy-config", "its policies have no configuration")


def _refuse_windows(params: CacheInitParams) -> None:
    if not params.swa_gates_prefix_match:
        refuse("windows that do not belong to the tree", "a prefix ends where its window is cached")
    if params.decoder_swa_bounded_replay:
        refuse("--enable-decoder-swa-bounded-replay", "it does not replay windows")


def _refuse_pools(params: CacheInitParams) -> None:
    allocator = params.token_to_kv_pool_allocator
    inherited = [kind.__name__ for kind in type(allocator).__mro__]
    if any(name in inherited for name in VIRTUAL_POOLS):
        refuse(
            f"the allocator {type(allocator).__name__} (--enable-unified-memory or "
            "--enable-kv-cache-sharding)",
            "its slots have to be those of one pool",
        )
    if getattr(params.req_to_token_pool, "mamba_ckpt_pool", None) is not None:
        refuse("--enable-int8-mamba-checkpoint", "its states are slots of the state pool")


def _refuse_storage() -> None:
    memory = _server_setting("get_memory")
    if memory is None:
        return
    if getattr(memory, "hicache_host_memory_mode", "cache") == "buffer_only":
        refuse("--hicache-host-memory-mode buffer_only", "its host tier is a cache")
    if getattr(memory, "enable_unified_cache_external_linker", False):
        refuse(
            "--enable-unified-cache-external-linker",
            "it copies to the host, and from there to storage",
        )
    if getattr(memory, "enable_lmcache", False):
        refuse("--enable-lmcache", "it has a device and a host tier")
    if backend := getattr(memory, "radix_cache_backend", None):
        refuse(f"--radix-cache-backend {backend}", "it serves SGLang's own controller")


def _server_setting(getter: str) -> object:
    """A group of the server's arguments; None where no server has set any."""
    from sglang.srt import runtime_context  # noqa: PLC0415

    get: Callable[[], object] = getattr(runtime_context, getter)
    try:
        return get()
    except (AssertionError, AttributeError, RuntimeError, ValueError):
        return None
