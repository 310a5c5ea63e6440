"""The disk of a rank: its identity, from vLLM's configuration and the caches as they lie.

Everything that changes the bytes of a page at equal tokens is a fact: the model's configuration
with its overrides, the weights, dtypes and quantization, how the blocks of each layer lie in
memory, and which of how many ranks this is. Paths are not: a model may be moved.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kvcanon.disk import DiskIdentity, DiskStore, DiskUnusable
from kvcanon.disk.model_facts import config_digest, weights_of_model
from kvcanon.disk.opening import segment_bytes_of_pages
from kvcanon.optimized.vllm.disk_copies import DiskCopies, DiskNotes, HostPages

if TYPE_CHECKING:
    from vllm.config import VllmConfig

WEIGHTS_OPTION = "disk_weights of kv_connector_extra_config"
FROM_FILES = ("auto", "hf", "safetensors", "pt", "npcache", "fastsafetensors", "bitsandbytes")
"""The ways to load weights of which the files in the model's folder are all."""
_OF_MODEL = ("dtype", "quantization", "max_model_len")
"""Some kinds of RoPE choose their factors by the longest context."""
_OF_CACHE = ("cache_dtype", "block_size", "kv_cache_dtype_skip_layers")

logger = logging.getLogger(__name__)


def open_disk(
    folder: Path, capacity_bytes: int, identity: DiskIdentity, host: HostPages
) -> DiskCopies:
    """Open what a rank has on the disk. Raises: DiskUnusable, as for a folder in use."""
    notes = DiskNotes()
    store = DiskStore.open(
        folder,
        identity,
        capacity_bytes,
        pools=len(host.page_bytes),
        segment_bytes=segment_bytes_of_pages(capacity_bytes, max(host.page_bytes)),
        on_drop=notes.note_gone,
    )
    logger.info(
        "kvcanon's disk: %s of %.1f GB, with %d pages, for %s",
        *(store.parts.folder.path, capacity_bytes / 1e9, store.statistics().pages),
        dict(identity.facts),
    )
    return DiskCopies(store, host, notes)


def vllm_identity(
    config: VllmConfig,
    release: str,
    weights: str,
    layout: Mapping[str, str],
    rank: int,
) -> DiskIdentity:
    """The identity of the pages of a rank.

    `weights` are as a user names them, or empty; `layout` is that of `regions.layout_facts`.
    Raises: DiskUnusable, where it is not known which weights the engine has.
    """
    model, cache, parallel = config.model_config, config.cache_config, config.parallel_config
    ranks = parallel.tensor_parallel_size
    facts = {
        "vllm": release,
        "model": config_digest(model.hf_config.to_dict()),
        "weights": weights or _weights(config),
        "ranks": f"tp{ranks}",
        "attention": _attention(config),
        **{f"model.{name}": str(getattr(model, name, None)) for name in _OF_MODEL},
        **{f"cache.{name}": str(getattr(cache, name, None)) for name in _OF_CACHE},
        **layout,
    }
    replica = getattr(parallel, "data_parallel_index", 0)
    return DiskIdentity(facts, f"tp{rank}of{ranks}-dp{replica}")


def _attention(config: VllmConfig) -> str:
    """The classes that compute attention: two may fill blocks of equal shapes otherwise."""
    layers = getattr(config.compilation_config, "static_forward_context", {})
    kinds = {type(getattr(layer, "impl", layer)).__qualname__ for layer in layers.values()}
    return " ".join(sorted(kinds))


def _weights(config: VllmConfig) -> str:
    """Which weights the engine has loaded. Raises: DiskUnusable."""
    load_format = str(config.load_config.load_format).rpartition(".")[2].lower()
    if load_format not in FROM_FILES:
        raise DiskUnusable(
            f"which weights --load-format {load_format} loads is not known here; say which they "
            f"are, as a revision, in {WEIGHTS_OPTION}"
        )
    model = config.model_config
    return weights_of_model(model.model, model.revision, load_format, WEIGHTS_OPTION)
