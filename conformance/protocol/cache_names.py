"""Adapters by name: built-in ones, any as `package.module:factory`, or a child process.

A name leads to an `Adapter`, or to a function that makes caches. A function is assumed to offer
every configuration; an adapter says what it offers.
"""

from __future__ import annotations

import sys
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import cast

from kvcanon.conformance.errors import UsageError, describe_exception
from kvcanon.conformance.protocol.adapter import Adapter, MakeCache
from kvcanon.conformance.protocol.pipe import PREFIX, pipe_adapter
from kvcanon.reference import ReferenceCache

REFERENCE = Adapter("reference", ReferenceCache)

SHORT = {
    "variant": "kvcanon.conformance.variants.variant:VARIANT",
    "optimized": "kvcanon.optimized:OptimizedCache",
    "sglang": "kvcanon.conformance.engines.sglang.adapters:UNIFIED",
    "sglang-rust": "kvcanon.conformance.engines.sglang.adapters:NATIVE",
    "sglang-radix": "kvcanon.conformance.engines.sglang.adapters_plain:RADIX",
    "sglang-swa-radix": "kvcanon.conformance.engines.sglang.adapters_plain:WINDOW",
    "sglang-hi-radix": "kvcanon.conformance.engines.sglang.adapters_hierarchical:HIERARCHICAL",
    "vllm": "kvcanon.conformance.engines.vllm.adapters:VLLM",
    "vllm-counted": "kvcanon.conformance.engines.vllm.adapters:COUNTED",
    "lmdeploy": "kvcanon.conformance.engines.lmdeploy.adapters:SCHEDULED",
    "lmdeploy-trie": "kvcanon.conformance.engines.lmdeploy.adapters:TRIE",
    "lmdeploy-trie-fine": "kvcanon.conformance.engines.lmdeploy.adapters:FINE",
    "nano-vllm": "kvcanon.conformance.engines.nano_vllm.block_manager:NANO",
    "mini-sglang": "kvcanon.conformance.engines.mini_sglang.radix:MINI",
    "lightllm": "kvcanon.conformance.engines.lightllm.radix:LIGHT",
}
"""Short names of factories; each is imported on use only, since not everyone has its libraries."""


def load_adapter(name: str) -> Adapter:
    """Return the adapter of this name. Raises: UsageError."""
    if name == REFERENCE.name:
        return REFERENCE
    if name.startswith(PREFIX):
        return pipe_adapter(name.removeprefix(PREFIX))
    module_name, colon, attribute = SHORT.get(name, name).partition(":")
    if not (module_name and colon and attribute):
        known = ", ".join([REFERENCE.name, *SHORT])
        ways = f"one as package.module:factory, or a child process as {PREFIX}COMMAND"
        raise UsageError(f"no cache {name!r}; name {known}, {ways}")
    module_name = module_name.removesuffix(".py")
    # As under `python -m`, modules in the current folder are found.
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        module = import_module(module_name)
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"{module_name} cannot be imported: {describe_exception(error)}"
        ) from error
    found = getattr(module, attribute, None)
    if isinstance(found, Adapter):
        return found
    if found is None:
        near = get_close_matches(attribute, vars(module), n=3)
        hint = f"; near it are {', '.join(near)}" if near else ""
        raise UsageError(f"{module_name} has no factory {attribute!r}{hint}")
    if not callable(found):
        kind = type(found).__name__
        raise UsageError(
            f"{name} is no factory but a {kind}; name a function, a class or an Adapter"
        )
    return Adapter(name, cast("MakeCache", found))
