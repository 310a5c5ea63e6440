"""The measurements of `kvcanon lab bench engine`, as jobs of the bench's child process."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

from kvcanon.conformance.errors import UsageError
from kvcanon.lab.bench.case import BenchCell
from kvcanon.lab.bench.drivers.sglang_engine import OURS, EngineDriver
from kvcanon.lab.bench.engine_memory import measure_memory
from kvcanon.lab.bench.engine_speed import measure_speed
from kvcanon.lab.bench.engine_stalls import measure_stalls
from kvcanon.lab.bench.server_contest import ServerLoad, measure_servers
from kvcanon.lab.bench.shared_prefixes import SharedPrefixes
from kvcanon.lab.servers.server_environment import make_servers
from kvcanon.lab.torch_device import require_device

Options = Mapping[str, str]
SERVER = "engine_server"
MEMORY, SHORT_MEMORY = "engine_memory", "engine_memory_short"
"""Trees of prompts of 1,200 to 3,000 tokens, and of 40 to 80."""
SERVER_PACKAGES = ("torch", "transformers", "xgrammar", "uvicorn")


def engine_job(what: str, cell: BenchCell, options: Options, seed: int) -> dict[str, object]:
    """Run a measurement by name. Raises: UsageError, which says what is missing."""
    if what == SERVER:
        require_server()
    else:
        try:
            require_device(cell.device)
            import_engine(cell)
        except ImportError as error:
            raise UsageError(f"bench engine needs SGLang 0.5.23: {error}") from error
    return JOBS[what](cell, options, seed)


def import_engine(cell: BenchCell) -> None:
    """Make a cache, so that whatever is missing is told before anything is measured."""
    EngineDriver(cell, OURS)


def _speed(cell: BenchCell, options: Options, seed: int) -> dict[str, object]:
    workload = SharedPrefixes(int(options["requests"]), seed)
    cores = options["cores"].split(",")
    measured = measure_speed(cell, cores, workload, int(options["rounds"]))
    return {"cores": [each.to_json() for each in measured]}


def _memory(cell: BenchCell, options: Options, seed: int) -> dict[str, object]:
    workload = SharedPrefixes(cell.pool_tokens // 1000 + 1000, seed)
    return measure_memory(cell, options["cores"], workload).to_json()


def _short_memory(cell: BenchCell, options: Options, seed: int) -> dict[str, object]:
    half = (20, 40)
    workload = SharedPrefixes(
        cell.pool_tokens // half[0], seed, prefix_tokens=half, own_tokens=half
    )
    return measure_memory(cell, options["cores"], workload).to_json()


def _stalls(cell: BenchCell, options: Options, seed: int) -> dict[str, object]:
    return measure_stalls(cell, options["cores"], int(options["prompts"]), seed).to_json()


def require_server() -> None:
    """Check for what a server imports besides its cache. Raises: UsageError."""
    missing = [name for name in SERVER_PACKAGES if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"--server needs {missing[0]}, which SGLang's servers import and {sys.prefix} lacks; "
            f"make a whole environment with `{make_servers(Path(sys.prefix).parent)}`"
        )


def _server(cell: BenchCell, options: Options, seed: int) -> dict[str, object]:
    load = ServerLoad(
        tuple(options["cores"].split(",")),
        cell,
        int(options["requests"]),
        int(options["clients"]),
        int(options["rounds"]),
        seed,
    )
    # Logs are kept where it fails.
    folder = Path(tempfile.mkdtemp(prefix="kvcanon-load-"))
    found = measure_servers(load, folder)
    shutil.rmtree(folder)
    return {"cores": [each.to_json(found[0]) for each in found]}


JOBS: Mapping[str, Callable[[BenchCell, Options, int], dict[str, object]]] = {
    "engine_speed": _speed,
    MEMORY: _memory,
    SHORT_MEMORY: _short_memory,
    "engine_stalls": _stalls,
    SERVER: _server,
}
