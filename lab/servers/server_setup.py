"""How servers are started: their flags and variables, and which servers a run compares."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

from attrs import evolve, frozen

from kvcanon.lab.releases.mended import mended_core
from kvcanon.lab.servers.tiny_model import CONTEXT, FULL_MODEL, SLIDING_MODEL
from kvcanon.lab.torch_device import CPU_DEVICE

KVCANON = "kvcanon"
RUST = "rust"
PYTHON = "python"
MENDED = mended_core.NAME
"""SGLang's Python core with kvcanon's rules; `server_plugin` registers it."""
NO_CACHE = "none"
CORES = (KVCANON, RUST, PYTHON, MENDED)

NO_HOST = ""
WRITE_THROUGH = "write_through"
WRITE_BACK = "write_back"
SELECTIVE = "write_through_selective"

PAGE_SIZE = 4
DEVICE_TOKENS = 512
HOST_RATIO = 4
CHUNK = 64
SLIDING_SHARE = 0.5
"""Size of the window pool as a share of the full pool."""

PLUGIN = "kvcanon_serving"
"""The plugin that prepares a server for this machine, and plants faults."""
FAULT = "KVCANON_SERVING_FAULT"
"""The variable that names the fault to plant."""

GPU_DEVICE = "cuda"
ON_A_GPU = {
    # Greedy tokens are compared with those of plain torch on a CPU, in float32.
    "SGLANG_FORCE_FUSED_OP_BACKEND": "torch",
    "NVIDIA_TF32_OVERRIDE": "0",
    # Compiling takes longer than the script.
    "TORCHDYNAMO_DISABLE": "1",
    # None of its kernels is used, so that a stand-in for them does.
    "SGLANG_SKIP_SGL_KERNEL_VERSION_CHECK": "1",
}
"""Variables of a server on a GPU."""
CHECKS = ("SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_BUSY", "SGLANG_ENABLE_RANK_CONSENSUS_CHECKER")


@frozen
class ServerSizes:
    """How much a server has room for, in tokens."""

    page_size: int
    device_tokens: int
    chunk: int
    """The most tokens of a prompt that one step computes."""
    context: int
    """The most tokens of a prompt and its continuation."""
    at_once: int
    """The most requests that run at a time."""
    checked: bool
    """Whether SGLang checks itself in every step, and reserves little, so that batches retract."""


SCRIPTED = ServerSizes(PAGE_SIZE, DEVICE_TOKENS, CHUNK, CONTEXT, at_once=8, checked=True)
"""Room for a script: little, so that everything happens in few requests."""


@frozen
class ServerSetup:
    """One server."""

    model: str
    core: str
    """A registered tree core, or `NO_CACHE`."""
    host: str = NO_HOST
    """HiCache's write policy; empty without HiCache."""
    ranks: int = 1
    fault: str = ""
    """A planted fault, from `core_faults`."""
    sizes: ServerSizes = SCRIPTED
    events: bool = True
    """Whether it publishes KV events; a server without a cache has none."""
    flags: tuple[str, ...] = ()
    """Arguments that it gets besides."""
    device: str = CPU_DEVICE
    """Where it computes, as SGLang names it."""

    @property
    def name(self) -> str:
        """What reports and files call it."""
        device = "" if self.device == CPU_DEVICE else self.device
        parts = [self.model, self.core, self.host, f"tp{self.ranks}", device, self.fault]
        return "-".join(part for part in parts if part)


@frozen
class Ports:
    """The ports of a server on the loopback."""

    http: int
    events: int
    rendezvous: int


def arguments(setup: ServerSetup, model: Path, ports: Ports) -> list[str]:
    """The arguments of `sglang.launch_server`."""
    sizes = setup.sizes
    flags = {
        "model-path": model,
        "device": setup.device,
        "attention-backend": "torch_native",
        "dtype": "float32",
        "max-total-tokens": sizes.device_tokens,
        "page-size": sizes.page_size,
        "chunked-prefill-size": sizes.chunk,
        "max-running-requests": sizes.at_once,
        "context-length": sizes.context,
        "mem-fraction-static": 0.3,
        "tp-size": setup.ranks,
        "host": "127.0.0.1",
        "port": ports.http,
        "nccl-port": ports.rendezvous,
        "random-seed": 0,
        "stream-interval": 1,
        "watchdog-timeout": 60,
    }
    switches = ["--skip-tokenizer-init", "--skip-server-warmup"]
    if sizes.checked:
        # Room for replies is hardly reserved, so that a full batch retracts.
        flags["schedule-conservativeness"] = 0.1
    if setup.device != CPU_DEVICE:
        flags["sampling-backend"] = "pytorch"
        switches.append("--disable-cuda-graph")
    if setup.model == SLIDING_MODEL:
        flags["swa-full-tokens-ratio"] = SLIDING_SHARE
    if setup.core == NO_CACHE:
        switches.append("--disable-radix-cache")
    elif setup.events:
        # A host pattern other than a wildcard is connected to, not bound.
        events = {"publisher": "zmq", "topic": "kv", "endpoint": f"tcp://*:{ports.events}"}
        flags["kv-events-config"] = json.dumps(events)
    if setup.host:
        switches.append("--enable-hierarchical-cache")
        flags |= {
            "hicache-ratio": HOST_RATIO,
            "hicache-write-policy": setup.host,
            "hicache-io-backend": "direct",
            "hicache-mem-layout": "layer_first",
        }
    named = [text for flag, value in flags.items() for text in (f"--{flag}", str(value))]
    return [*named, *switches, *setup.flags]


def variables(setup: ServerSetup, plugins: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment variables of a server; `plugins` is put on Python's path."""
    cores = inherited.get("SGLANG_CPU_OMP_THREADS_BIND", "|".join("01"[: setup.ranks]))
    path = [str(plugins), *filter(None, [inherited.get("PYTHONPATH")])]
    own = {
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        # A batch in one message stays whole, so that what is cached can be repeated.
        "SGLANG_ENABLE_COLOCATED_BATCH_GEN": "1",
        "PYTHONPATH": ":".join(path),
        FAULT: setup.fault,
    }
    own |= {"SGLANG_USE_CPU_ENGINE": "1"} if setup.device == CPU_DEVICE else ON_A_GPU
    if setup.sizes.checked:
        own |= dict.fromkeys(CHECKS, "1")
    if setup.core != NO_CACHE:
        own["SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND"] = setup.core
    if setup.ranks > 1:
        own["SGLANG_CPU_OMP_THREADS_BIND"] = cores
    return {**inherited, **own}


def whole_setups(cores: Sequence[str]) -> tuple[ServerSetup, ...]:
    """The servers of a whole run: every core in every way to serve, and no cache."""
    ways = (
        *product((NO_HOST, WRITE_THROUGH), (1, 2)),
        *product((WRITE_BACK, SELECTIVE), (1,)),
    )
    return tuple(
        ServerSetup(model, core, host, ranks)
        for model in (FULL_MODEL, SLIDING_MODEL)
        for core, host, ranks in (
            (NO_CACHE, NO_HOST, 1),
            *((core, host, ranks) for host, ranks in ways for core in cores),
        )
    )


def small_setups(cores: Sequence[str]) -> tuple[ServerSetup, ...]:
    """The servers of a small run: a sliding window and HiCache at once, for each core."""
    served = ServerSetup(SLIDING_MODEL, NO_CACHE)
    return (served, *(evolve(served, core=core, host=WRITE_THROUGH) for core in cores))
