"""The entry point of SGLang's plugins: registers the tree core named `kvcanon`.

SGLang loads this in each of its processes, so that it imports nothing before it is needed.
docs/sglang.md says how to install and select the core.
"""

from __future__ import annotations

import logging
import os
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from kvcanon.sglang_release import NAME, OTHERWISE, RELEASE, SELECTS

if TYPE_CHECKING:
    from sglang.srt.mem_cache.cache_init_params import CacheInitParams
    from sglang.srt.mem_cache.registry import TreeCacheBuildContext

    from kvcanon.optimized.sglang.tree_core import KvcanonTreeCore

MAKES_CACHES = "sglang.srt.mem_cache.registry.create_tree_cache"
"""The function of SGLang that makes the cache of a scheduler."""


def register() -> None:
    """Register the tree core; a second call changes nothing.

    Where the core is selected, a server whose cache has none is told so when it starts.

    A release of SGLang without tree cores logs what a plugin raises, and serves from its own cache.
    Where this core is selected such a server has to end.

    Raises:
        SystemExit: this core is selected, and SGLang has no tree cores.
    """
    try:
        from sglang.srt.mem_cache.unified_cache.tree_core_registry import (  # noqa: PLC0415
            get_tree_core_factory,
            register_tree_core_backend,
        )
    except ModuleNotFoundError:
        if os.environ.get(SELECTS) != NAME:
            return
        raise SystemExit(
            f"the tree core {NAME} is made for sglang=={RELEASE} and this is {_installed()}, which "
            f"has no tree cores; install that release, or {OTHERWISE}"
        ) from None
    if get_tree_core_factory(NAME) is None:
        register_tree_core_backend(NAME, make_tree_core)
        if os.environ.get(SELECTS) == NAME:
            from sglang.srt.plugins.hook_registry import HookRegistry, HookType  # noqa: PLC0415

            HookRegistry.register(MAKES_CACHES, report, HookType.AFTER)


def make_tree_core(params: CacheInitParams, components: dict[object, object]) -> KvcanonTreeCore:
    """Make the tree core of one cache.

    Raises:
        ValueError: the native core is missing, or the server asks for something that this core
            does not offer; the sentence names the flag.
    """
    try:
        from kvcanon.optimized.sglang.start_checks import refuse_what_is_not_offered  # noqa: PLC0415
    except ImportError as error:
        raise ValueError(f"the tree core {NAME} cannot be used here: {error}") from error
    refuse_what_is_not_offered(params)
    from kvcanon.optimized.sglang.tree_core import KvcanonTreeCore  # noqa: PLC0415

    return KvcanonTreeCore(params, components)


def report(cache: object, context: TreeCacheBuildContext) -> None:
    """Begin to report of a cache that SGLang made, or warn that it does not have this core."""
    core = getattr(cache, "tree_core", None)
    if core is None or type(core).__module__.partition(".")[0] != "kvcanon":
        warn_without_core(cache, context)
        return
    from kvcanon.optimized.sglang import server_report  # noqa: PLC0415

    collector = getattr(cache, "metrics_collector", None)
    server_report.begin(core, None if collector is None else collector.labels)


def warn_without_core(cache: object, context: TreeCacheBuildContext) -> None:
    """Say in the log that a cache which SGLang made does not have the core that is selected.

    SGLang asks for a tree core only where it makes a `UnifiedRadixCache`.
    """
    if context.disable_radix_cache:
        return
    logging.getLogger(__name__).warning(
        "%s=%s has no effect: with %s SGLang serves from %s, without kvcanon",
        *(SELECTS, NAME, _what_selects(context), type(cache).__name__),
    )


def _what_selects(context: TreeCacheBuildContext) -> str:
    """What made SGLang take another cache, in the order in which it decides."""
    from sglang.srt.runtime_context import get_memory  # noqa: PLC0415

    memory = get_memory()
    if memory.radix_cache_backend:
        return f"--radix-cache-backend {memory.radix_cache_backend}"
    if context.is_hybrid_swa and context.full_tokens_per_layer == 0:
        return "a model of sliding windows alone"
    return "--enable-flexkv" if memory.enable_flexkv else "these flags"


def _installed() -> str:
    """The release of SGLang that is installed."""
    try:
        return version("sglang")
    except PackageNotFoundError:
        return "an unknown release"
