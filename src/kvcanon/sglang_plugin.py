"""The entry point of SGLang's plugins: registers the tree core named `kvcanon`.

SGLang loads this in each of its processes, so that it imports nothing before it is needed.
docs/sglang.md says how to install and select the core.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sglang.srt.mem_cache.cache_init_params import CacheInitParams

    from kvcanon.optimized.sglang.tree_core import KvcanonTreeCore

NAME = "kvcanon"
"""The value of SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND that selects this core."""


def register() -> None:
    """Register the tree core; a second call changes nothing."""
    from sglang.srt.mem_cache.unified_cache.tree_core_registry import (  # noqa: PLC0415
        get_tree_core_factory,
        register_tree_core_backend,
    )

    if get_tree_core_factory(NAME) is None:
        register_tree_core_backend(NAME, make_tree_core)


def make_tree_core(params: CacheInitParams, components: dict[object, object]) -> KvcanonTreeCore:
    """Make the tree core of one cache.

    Raises:
        ValueError: the native core is missing, or the server asks for something that this core
            does not offer; the sentence names the flag.
    """
    try:
        from kvcanon.optimized.sglang.refusals import refuse_what_is_not_offered  # noqa: PLC0415
    except ImportError as error:
        raise ValueError(f"the tree core {NAME} cannot be used here: {error}") from error
    refuse_what_is_not_offered(params)
    from kvcanon.optimized.sglang.tree_core import KvcanonTreeCore  # noqa: PLC0415

    return KvcanonTreeCore(params, components)
