"""The identity of the pages of a stock SGLang server, from its own configuration and host pool.

Everything that changes the bytes of a page at equal tokens is a fact: the model's configuration
with its overrides, the weights, dtype and quantization, the layout of the host pool, the layers and
heads that this rank holds, and how many ranks there are. Paths are not: a model may be moved.
"""

from __future__ import annotations

import hashlib
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

from kvcanon.disk.errors import DiskUnusable
from kvcanon.disk.identity import DiskIdentity
from kvcanon.disk.model_facts import config_digest, weights_of_model

SglangObject: TypeAlias = Any
"""An object of SGLang, which is not installed where types are checked."""

_ARGUMENTS = (
    "dtype",
    "kv_cache_dtype",
    "quantization",
    "load_format",
    "quantize_and_serve",
    "torchao_config",
    "enable_lora",
)
_OF_POOL = (
    "layout",
    "page_size",
    "start_layer",
    "end_layer",
    "layer_num",
    "head_num",
    "head_dim",
    "v_head_dim",
    "kv_lora_rank",
    "qk_rope_head_dim",
    "kv_cache_dim",
    "dtype",
    "size_per_token",
    "storage_format_tag",
)


def sglang_identity(config: SglangObject, pool: SglangObject) -> DiskIdentity:
    """The identity of the pages that a rank stores. Raises: DiskUnusable.

    `config` is SGLang's `HiCacheStorageConfig`, and `pool` the host pool of keys and values.
    """
    arguments = import_module("sglang.srt.runtime_context").get_server_args()
    extra = config.extra_config or {}
    facts = {
        "sglang": version("sglang"),
        "model": _config_digest(arguments),
        "weights": str(extra.get("weights") or _weights(arguments)),
        "pool": type(pool).__name__,
        "ranks": f"tp{config.tp_size} pp{config.pp_size} cp{config.attn_cp_size}",
        "replicated": str(config.is_mla_model),
        **{f"pool.{name}": str(getattr(pool, name, None)) for name in _OF_POOL},
        **{f"argument.{name}": str(getattr(arguments, name, None)) for name in _ARGUMENTS},
        "scales": _file_hash(getattr(arguments, "quantization_param_path", None)),
    }
    place = (
        f"tp{config.tp_rank}of{config.tp_size}-pp{config.pp_rank}of{config.pp_size}"
        f"-cp{config.attn_cp_rank}of{config.attn_cp_size}-dp{config.dp_rank}"
    )
    return DiskIdentity(facts, place)


def _config_digest(arguments: SglangObject) -> str:
    """A hash of the model's configuration, with what the command line changes of it."""
    made = import_module("sglang.srt.configs.model_config").ModelConfig.from_server_args(arguments)
    return config_digest(made.hf_config.to_dict())


def _weights(arguments: SglangObject) -> str:
    """Which weights the server has loaded. Raises: DiskUnusable."""
    return weights_of_model(arguments.model_path, arguments.revision, str(arguments.load_format))


def _file_hash(path: str | None) -> str:
    """A hash of a file; empty for none. Raises: DiskUnusable."""
    if not path:
        return ""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        raise DiskUnusable(f"{path} cannot be read: {error.strerror or error}") from error
