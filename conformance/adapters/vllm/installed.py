"""What the installed release of vLLM has, and where.

What readers get wrong: a version number decides nothing here. It is for reports.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of

from kvcanon.conformance.adapters.vllm.peer import Named
from kvcanon.conformance.faults import Fault, what_was_raised

PACKAGE = "vllm"
PLACES: Mapping[str, str] = {
    "KVCacheManager": "vllm.v1.core.kv_cache_manager",
    "KVCacheConfig": "vllm.v1.kv_cache_interface",
    "KVCacheGroupSpec": "vllm.v1.kv_cache_interface",
    "FullAttentionSpec": "vllm.v1.kv_cache_interface",
    "SlidingWindowSpec": "vllm.v1.kv_cache_interface",
    "Request": "vllm.v1.request",
    "SamplingParams": "vllm.sampling_params",
    "LoRARequest": "vllm.lora.request",
    "sha256": "vllm.utils.hashing",
    "init_none_hash": "vllm.v1.core.kv_cache_utils",
    "get_request_block_hasher": "vllm.v1.core.kv_cache_utils",
    "get_group_id": "vllm.v1.core.kv_cache_utils",
    "maybe_convert_block_hash": "vllm.v1.core.kv_cache_utils",
}
"""Where each name is."""


def version() -> str:
    """The release that is installed. Raises: Fault."""
    try:
        return version_of(PACKAGE)
    except PackageNotFoundError:
        raise Fault(
            "vLLM is not installed here; `kvcanon peers make vllm==0.33.0` makes an environment "
            "that has it, and this command runs in there"
        ) from None


@cache
def named(name: str) -> Named:
    """The class or function of this name. Raises: Fault."""
    try:
        found = getattr(import_module(PLACES[name]), name)
    except AttributeError:
        raise Fault(f"vLLM {version()} has no {name} in {PLACES[name]}") from None
    except Exception as error:
        raise Fault(f"vLLM {version()} cannot be used here: {what_was_raised(error)}") from error
    # A refused reset is an answer to the judge, and no news to whoever runs it.
    logging.getLogger(PACKAGE).setLevel(logging.ERROR)
    return found
