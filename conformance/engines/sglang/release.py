"""Names in the installed release of SGLang.

Modules and classes moved between releases. Every name is searched in all places where some release
has it; a missing name is a `UsageError`.

The version number is for reports only; nothing depends on it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module

from kvcanon.conformance.engines.installed_names import EngineObject
from kvcanon.conformance.engines.package_version import installed_version
from kvcanon.conformance.errors import UsageError, describe_exception

PACKAGE = "sglang"
_SRT = "sglang.srt"
_POOLS = (
    "mem_cache.memory_pool",
    "mem_cache.swa_memory_pool",
    "mem_cache.allocator.swa",
    "mem_cache.allocator.paged",
    "mem_cache.allocator.token",
    "mem_cache.allocator",
)
PLACES: Mapping[str, tuple[str, ...]] = {
    "ServerArgs": ("server_args",),
    "set_global_server_args_for_scheduler": ("server_args",),
    "MHATokenToKVPool": _POOLS,
    "SWAKVPool": ("mem_cache.swa_memory_pool", "mem_cache.memory_pool"),
    "HybridLinearKVPool": _POOLS,
    "ReqToTokenPool": _POOLS,
    "HybridReqToTokenPool": _POOLS,
    "TokenToKVPoolAllocator": _POOLS[3:] + _POOLS[:3],
    "PagedTokenToKVPoolAllocator": _POOLS[3:] + _POOLS[:3],
    "SWATokenToKVPoolAllocator": _POOLS,
    "CacheInitParams": ("mem_cache.cache_init_params",),
    "ComponentType": (
        "mem_cache.unified_cache.component_type",
        "mem_cache.unified_cache_components",
    ),
    "UnifiedRadixCache": ("mem_cache.unified_radix_cache",),
    "register_tree_core_backend": ("mem_cache.unified_cache.tree_core_registry",),
    "UnifiedTreeCore": ("mem_cache.unified_cache.unified_tree_core",),
    "RadixCache": ("mem_cache.radix_cache",),
    "SWARadixCache": ("mem_cache.swa_radix_cache",),
    "HiRadixCache": ("mem_cache.hiradix_cache",),
    "HostKVCache": ("mem_cache.pool_host.base",),
    "RadixKey": ("mem_cache.radix_cache",),
    "MatchPrefixParams": ("mem_cache.base_prefix_cache",),
    "InsertParams": ("mem_cache.base_prefix_cache",),
    "EvictParams": ("mem_cache.base_prefix_cache",),
    "InitLoadBackParams": ("mem_cache.base_prefix_cache",),
    "DecLockRefParams": ("mem_cache.base_prefix_cache",),
    "IncLockRefResult": ("mem_cache.base_prefix_cache",),
}
"""The modules in which some release has each name."""


def version() -> str:
    """The installed release. Raises: UsageError."""
    return installed_version(PACKAGE, "SGLang", "sglang==0.5.23")


def has(name: str) -> bool:
    """Whether the release has a class or function of this name."""
    return _found(name) is not None


def named(name: str) -> EngineObject:
    """Find a class or function by name. Raises: UsageError."""
    found = _found(name)
    if found is None:
        raise UsageError(f"SGLang {version()} has no {name}")
    return found


@cache
def _found(name: str) -> EngineObject | None:
    for place in PLACES[name]:
        try:
            module = import_module(f"{_SRT}.{place}")
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith(PACKAGE):
                raise UsageError(f"SGLang {version()} cannot be used here: {error}") from error
            continue
        except Exception as error:
            raise UsageError(
                f"SGLang {version()} cannot be used here: {describe_exception(error)}"
            ) from error
        if hasattr(module, name):
            return getattr(module, name)
    return None


def called(function: Callable[..., EngineObject], **arguments: object) -> EngineObject:
    """Call a function with those arguments that it has parameters for in this release."""
    return function(**{name: value for name, value in arguments.items() if takes(function, name)})


def takes(function: Callable[..., object], name: str) -> bool:
    """Whether a function has a parameter of this name."""
    return name in _parameters(function)


@cache
def _parameters(function: Callable[..., object]) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters)


def require_cores() -> None:
    """Require a release that takes tree cores. Raises: UsageError."""
    if not has("register_tree_core_backend"):
        raise UsageError(f"SGLang {version()} takes no tree core; install sglang==0.5.23")
