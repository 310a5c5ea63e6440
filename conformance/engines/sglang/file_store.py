"""SGLang's `file` backend of HiCache as a store of pages: `HiCacheFile`, called as its controller.

Keys are SGLang's own page hashes, seeded by its own namespace. A LoRA is joined to the extra key,
as its scheduler joins it. The identity is what the controller puts into `HiCacheStorageConfig`: the
name of the model, the rank and the number of ranks; dtype and layout have no field there, and two
checkpoints with one name are one model.

`batch_set` has one answer for a batch, which is passed on for each page. There is no remove, and
the pools besides keys and values need pools of host memory, so neither is offered.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from attrs import define, field

from kvcanon.conformance.engines.installed_names import EngineObject, InstalledNames
from kvcanon.conformance.engines.sglang.cpu_stand_ins import prepare
from kvcanon.conformance.stores.adapter import StoreAdapter, StoreOffer, folder_ground
from kvcanon.spec.stores.calls import Ability
from kvcanon.spec.stores.page_store import PageStore
from kvcanon.spec.stores.pages import PageKey, StoreIdentity

NAMES = InstalledNames(
    "sglang",
    "SGLang",
    "sglang==0.5.23",
    {
        "HiCacheFile": "sglang.srt.mem_cache.hicache_storage",
        "HiCacheStorageConfig": "sglang.srt.mem_cache.hicache_storage",
        "frombuffer": "torch",
        "get_hash_str": "sglang.srt.mem_cache.utils",
        "storage_namespace_seed": "sglang.srt.mem_cache.utils",
        "uint8": "torch",
    },
)
NAMES.version()
prepare()
logging.getLogger("sglang").setLevel(logging.CRITICAL)  # It logs every miss.
for _name in NAMES.modules:
    NAMES[_name]  # A copy of this process then has all it needs.


@define(eq=False)
class SglangFileStore:
    """A `PageStore` around a `HiCacheFile`."""

    folder: Path
    identity: StoreIdentity
    capacity_bytes: int | None
    backend: EngineObject = field(init=False)

    def __attrs_post_init__(self) -> None:
        extra: dict[str, object] = {"file_storage_path": str(self.folder)}
        if self.capacity_bytes is not None:
            extra["max_size"] = self.capacity_bytes
        settings = NAMES["HiCacheStorageConfig"](
            tp_rank=self.identity.rank,
            tp_size=self.identity.ranks,
            pp_rank=0,
            pp_size=1,
            attn_cp_rank=0,
            attn_cp_size=1,
            is_mla_model=False,
            enable_storage_metrics=False,
            is_page_first_layout=self.identity.layout == "page_first",
            model_name=self.identity.model,
            extra_config=extra,
        )
        self.backend = NAMES["HiCacheFile"](settings, str(self.folder))

    def put(self, pages: Sequence[tuple[PageKey, bytes]]) -> list[bool]:
        """Set a batch; its answer is that of each page."""
        names = [self.name_of(key) for key, _ in pages]
        values = [_tensor(bytearray(content)) for _, content in pages]
        return [self.backend.batch_set(names, values)] * len(pages)

    def get(self, pages: Sequence[tuple[PageKey, memoryview]]) -> list[int | None]:
        """Get a batch into tensors over the buffers."""
        names = [self.name_of(key) for key, _ in pages]
        found = self.backend.batch_get(names, [_tensor(buffer) for _, buffer in pages])
        return [
            None if each is None else len(buffer)
            for each, (_, buffer) in zip(found, pages, strict=True)
        ]

    def exists(self, keys: Sequence[PageKey]) -> list[bool]:
        """Ask for each key."""
        return [self.backend.exists(self.name_of(key)) for key in keys]

    def leading_run(self, keys: Sequence[PageKey]) -> int:
        """Ask for the leading run, as a prefetch does."""
        count: int = self.backend.batch_exists([self.name_of(key) for key in keys])
        return count

    def remove(self, keys: Sequence[PageKey]) -> None:
        """It is not offered."""
        raise NotImplementedError

    def close(self) -> None:
        """Nothing is held."""

    def name_of(self, key: PageKey) -> str:
        """The hash of a page in hexadecimal."""
        return page_hash_of(self.identity, key)


def page_hash_of(identity: StoreIdentity, key: PageKey) -> str:
    """SGLang's hash of a page: a chain of its pages, seeded with the namespace."""
    space = key.namespace
    extra_key = space.extra_key
    if space.lora is not None:
        extra_key = (extra_key or "") + space.lora
    seed: str | None = NAMES["storage_namespace_seed"](extra_key, space.cache_salt)
    for at in range(0, len(key.tokens), identity.page_size):
        seed = NAMES["get_hash_str"](list(key.tokens[at : at + identity.page_size]), seed)
    assert seed is not None  # noqa: S101  # A page has tokens.
    return seed


def _tensor(memory: bytearray | memoryview) -> EngineObject:
    return NAMES["frombuffer"](memory, dtype=NAMES["uint8"])


def _opened(folder: Path, identity: StoreIdentity, capacity_bytes: int | None) -> PageStore:
    return SglangFileStore(folder, identity, capacity_bytes)


def _files(folder: Path, identity: StoreIdentity, key: PageKey) -> Sequence[Path]:
    name = page_hash_of(identity, key)
    return [folder / f"{name}_{identity.model}_{identity.rank}_{identity.ranks}.bin"]


FILE = StoreAdapter(
    f"sglang-file {NAMES.version()}",
    folder_ground(_opened, _files),
    StoreOffer(
        frozenset(
            {
                Ability.DURABLE,
                Ability.SHARED,
                Ability.EVICTS,
                Ability.RUNS,
                Ability.FILES,
                Ability.NAMESPACES,
            }
        ),
        least_capacity_bytes=1,
    ),
)
