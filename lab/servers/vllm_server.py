"""How a vLLM server is started on a machine without a GPU."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kvcanon.lab.servers.server_environment import VLLM_VARIABLES
from kvcanon.lab.servers.server_process import free_ports, plugin_folder, started
from kvcanon.lab.servers.server_setup import FAULT
from kvcanon.lab.servers.tiny_model import CONTEXT

VLLM = "vllm"
BLOCK_TOKENS = 32
"""vLLM for CPUs refuses blocks that are no multiple of this."""
BLOCKS = 48


def vllm_arguments(model: Path, port: int, events: int) -> list[str]:
    """The arguments of vLLM's server, which publishes KV events on a port."""
    published = {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "topic": "kv",
        "endpoint": f"tcp://*:{events}",
    }
    flags = {
        "model": model,
        "dtype": "float32",
        "max-model-len": CONTEXT,
        "block-size": BLOCK_TOKENS,
        "num-gpu-blocks-override": BLOCKS,
        "max-num-seqs": 4,
        "distributed-executor-backend": "uni",
        "host": "127.0.0.1",
        "port": port,
        "kv-events-config": json.dumps(published),
    }
    switches = [
        "--enforce-eager",
        "--skip-tokenizer-init",
        "--enable-prefix-caching",
        "--enable-prompt-tokens-details",
    ]
    named = [text for flag, value in flags.items() for text in (f"--{flag}", str(value))]
    return [*named, *switches]


def vllm_variables(fault: str, plugins: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment variables of a server; `plugins` is put on Python's path."""
    path = [str(plugins), *filter(None, [inherited.get("PYTHONPATH")])]
    return {**inherited, **VLLM_VARIABLES, "PYTHONPATH": ":".join(path), FAULT: fault}


@contextmanager
def running_vllm(fault: str, model: Path, folder: Path) -> Iterator[tuple[int, int]]:
    """Run a server, with its log in a folder; gives its port and that of its events.

    Raises: UsageError.
    """
    port, events = free_ports(2)
    name = f"{VLLM}-{fault}" if fault else VLLM
    command = ["vllm.entrypoints.openai.api_server", *vllm_arguments(model, port, events)]
    env = vllm_variables(fault, plugin_folder(folder), os.environ)
    with started(name, command, env, folder / f"{name}.log", (port, "/v1/models")):
        yield port, events
