"""Uses `DiskStorage` as SGLang's controller does, in SGLang's environment; prints what came of it.

The host pool is SGLang's class with tensors of a few pages, and the identity is given, since there
is no server.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from kvcanon.conformance.engines.sglang.cpu_stand_ins import prepare
from kvcanon.disk import DiskIdentity, DiskUnusable

PAGE_SIZE = 4
PAGES = 300
KEYS = [f"{number:064x}" for number in range(1, PAGES + 1)]
LAYOUTS = ("layer_first", "page_first", "page_first_direct")
SHAPES = {
    "layer_first": (2, 3, PAGES * PAGE_SIZE, 2, 16),
    "page_first": (2, PAGES * PAGE_SIZE, 3, 2, 16),
    "page_first_direct": (2, PAGES, 3, PAGE_SIZE, 2, 16),
}


def host_pool(layout: str) -> Any:  # noqa: ANN401  # SGLang has no types here.
    """SGLang's host pool of keys and values, with numbers in it."""
    torch = import_module("torch")
    made = import_module("sglang.srt.mem_cache.pool_host.mha").MHATokenToKVPoolHost
    pool = made.__new__(made)
    pool.layout, pool.page_size, pool.layer_num = layout, PAGE_SIZE, 3
    pool.head_num, pool.head_dim, pool.v_head_dim = 2, 16, 16
    pool.size, pool.dtype = PAGES * PAGE_SIZE, torch.float32
    pool.size_per_token = pool.get_size_per_token()
    pool.kv_buffer = torch.rand(SHAPES.get(layout, SHAPES["page_first"]))
    return pool


def config(folder: Path, **more: object) -> Any:  # noqa: ANN401
    """What SGLang's controller hands to a backend."""
    made = import_module("sglang.srt.mem_cache.hicache_storage").HiCacheStorageConfig
    extra: dict[str, object] = {"folder": str(folder), "size_gb": 0.1, "interface_v1": 1}
    extra |= {"module_path": "kvcanon.disk.sglang_storage", "class_name": "DiskStorage"}
    extra["backend_name"] = "kvcanon"
    if folder == Path():
        del extra["folder"]
    fields: dict[str, object] = {
        "tp_rank": 0,
        "tp_size": more.pop("tp_size", 1),
        "pp_rank": 0,
        "pp_size": 1,
        "attn_cp_rank": 0,
        "attn_cp_size": 1,
        "is_mla_model": more.pop("is_mla_model", False),
        "enable_storage_metrics": True,
        "is_page_first_layout": False,
        "model_name": "m",
    }
    return made(**fields, extra_config={**extra, **more})


def attached(folder: Path, layout: str = "page_first", **more: object) -> Any:  # noqa: ANN401
    """A backend that is attached as the controller attaches it."""
    factory = import_module("sglang.srt.mem_cache.storage").StorageBackendFactory
    pool = host_pool(layout)
    backend = factory.create_backend("dynamic", config(folder, **more), pool)
    backend.register_mem_pool_host(pool)
    backend.on_host_pools_registered()
    return backend


def moved(folder: Path, layout: str) -> dict[str, object]:
    """Write pages of a pool, read them into another place of it after a restart."""
    torch = import_module("torch")
    info = import_module("sglang.srt.mem_cache.hicache_storage").HiCacheStorageExtraInfo
    backend = attached(folder, layout)
    indices = torch.arange(PAGES * PAGE_SIZE)
    before = backend.pool.kv_buffer.clone()
    half = PAGES // 2
    good = backend.batch_set_v1(KEYS[:half], indices[: half * PAGE_SIZE])
    good += backend.batch_set_v1(
        KEYS[half:], indices[half * PAGE_SIZE :], info(prefix_keys=KEYS[:half])
    )
    samples = backend.get_stats()
    backend.close()
    backend = attached(folder, layout)
    backend.pool.kv_buffer.zero_()
    run = backend.batch_exists([*KEYS, "ff" * 32])
    read = backend.batch_get_v1(KEYS, indices)
    again = bool((backend.pool.kv_buffer == before).all())
    missing = backend.batch_get_v1(["ee" * 32], indices[:PAGE_SIZE])
    backend.clear()
    cleared = backend.batch_exists(KEYS)
    backend.close()
    return {
        "written": all(good),
        "run": run,
        "read": all(read),
        "equal": again,
        "missing": missing,
        "cleared": cleared,
        "sampled": len(samples.backup_pgs),
        "after close": backend.batch_get_v1(KEYS[:1], indices[:PAGE_SIZE]),
    }


def refusal(folder: Path, layout: str = "page_first", pool: str = "", **more: object) -> str:
    """Why an attach is refused; empty if it is not."""
    backend = None
    try:
        backend = attached(folder, layout, **more)
        if pool:
            backend.register_mem_host_pool_v2(None, pool)
    except DiskUnusable as refused:
        return str(refused)
    finally:
        if backend is not None:
            backend.close()
    return ""


def updated(folder: Path) -> dict[str, object]:
    """Weights that are updated while the store is attached."""
    torch = import_module("torch")
    module = import_module("sglang.srt.managers.scheduler_components.weight_updater")
    backend = attached(folder)
    indices = torch.arange(PAGE_SIZE)
    before = backend.batch_set_v1(KEYS[:1], indices)
    manager = module.SchedulerWeightUpdaterManager
    with suppress(AttributeError):  # There is no server to update; that it was asked is enough.
        manager.begin_weight_update(manager.__new__(manager), None)
    return {
        "before": before,
        "after": backend.batch_get_v1(KEYS[:1], indices),
        "exists": backend.batch_exists(KEYS[:1]),
        "put": backend.batch_set_v1(KEYS[:1], indices),
        "attach": refusal(folder),
        "attach with a name": refusal(folder, weights="revision-2"),
    }


def main(root: Path) -> dict[str, object]:
    """All of it."""
    prepare()
    storage: Any = import_module("kvcanon.disk.sglang_pages")
    storage.sglang_identity = lambda *_: DiskIdentity({"test": "1"})
    return {
        "moved": {layout: moved(root / layout, layout) for layout in LAYOUTS},
        "refused": {
            "option": refusal(root / "r", sise_gb=4),
            "size": refusal(root / "r", size_gb=0),
            "folder": refusal(Path()),
            "interface": refusal(root / "r", interface_v1=0),
            "layout": refusal(root / "r", "page_head"),
            "pool": refusal(root / "r", pool="swa"),
            "own pool": refusal(root / "r", pool="kv"),
            "mla": refusal(root / "r", tp_size=2, is_mla_model=True),
        },
        "updated": updated(root / "updated"),
    }


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))  # noqa: T201  # What the test reads.
