"""The host: a process with all mutants of the native core in it, which judges them one by one.

It forks for each mutant and switches the mutant on in the child, so that the host survives a mutant
that crashes or hangs. It reads jobs from stdin and writes verdicts to stdout, one JSON line each.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import sys
from collections.abc import Iterable, Iterator
from ctypes import CDLL, c_int
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from time import process_time
from typing import Any

from kvcanon.conformance.check.blocks import NumberedCases
from kvcanon.conformance.check.trial import Trial
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.conformance.protocol.cache_names import REFERENCE, load_adapter
from kvcanon.conformance.vectors import read_vectors
from kvcanon.conformance.workers.ending import end_with
from kvcanon.conformance.workers.hash_seeds import forget_seed
from kvcanon.lab.mutants.detection import verdict_of
from kvcanon.lab.mutants.looks import Look, as_checked, by_states, by_vectors, first_sight
from kvcanon.lab.mutants.native.schemata import AWAKE
from kvcanon.lab.mutants.place import MutantPlace

CORE = "kvcanon.optimized._core"
NOWHERE = MutantPlace("", "", 0, "", "")

PATIENCE_SECONDS = 20
"""CPU time limit of a child for one case; a child above it counts as hanging."""
SILENCE_SECONDS = 600.0
"""Wall-clock limit between two signs of life of a child."""
ALIVE = b"\n"
"""The sign of life that a child writes after each case; JSON ignores it as whitespace."""
MEMORY_BYTES = 6 << 30
"""The memory limit of a child: a mutant may allocate without end."""


def load_core(library: Path) -> CDLL:
    """Load a native core in place of the installed one. Raises: UsageError."""
    spec = spec_from_file_location(CORE, library)
    if spec is None or spec.loader is None:
        raise UsageError(f"{library} is no native module")
    sys.modules[CORE] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules[CORE])
    return CDLL(str(library))


def serve(library: Path) -> None:
    """Judge the mutants that stdin lists, until it ends. Raises: UsageError."""
    core = load_core(library)
    adapter = load_adapter("optimized")
    read_vectors()
    for line in sys.stdin:
        job = json.loads(line)
        verdict = _judged_apart(core, adapter, job)
        print(json.dumps(verdict), flush=True)  # noqa: T201  # The host answers on stdout.


def _judged_apart(core: CDLL, adapter: Adapter, job: dict[str, int]) -> dict[str, Any]:
    """Fork a child that judges a mutant. Returns its verdict, or how it died."""
    reading, writing = os.pipe()
    host = os.getpid()
    child = os.fork()
    if child == 0:
        end_with(host)
        os.close(reading)
        _judge(core, adapter, job, writing)
        os._exit(0)
    os.close(writing)
    said = b""
    while select.select([reading], [], [], SILENCE_SECONDS)[0]:
        piece = os.read(reading, 1 << 16)
        if not piece:
            break
        said += piece
    else:
        os.kill(child, signal.SIGKILL)
    os.close(reading)
    _, status = os.waitpid(child, 0)
    return json.loads(said) if said.strip() else _dead(status)


def _dead(status: int) -> dict[str, Any]:
    """The verdict of a child that died without one."""
    code = os.waitstatus_to_exitcode(status)
    if code in {-signal.SIGKILL, -signal.SIGXCPU}:
        name, text = "silent", f"it played a case for {PATIENCE_SECONDS} s, and to no end"
    elif code < 0:
        name = signal.Signals(-code).name
        text = f"it was ended by {name}"
    else:
        name, text = "exit", f"it ended with code {code}"
    return {"sight": "dead", "seen": [name], "how": "", "text": text}


def _judge(core: CDLL, adapter: Adapter, job: dict[str, int], writing: int) -> None:
    """Judge a mutant, and write the verdict; the looks write signs of life."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    forget_seed()  # A rank in another process would not have the mutant.
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    c_int.in_dll(core, AWAKE).value = job["number"]
    cases = NumberedCases(Trial(adapter, against=REFERENCE), job["seed"])
    seen = first_sight(_alive(_looks(cases, job), writing))
    verdict = verdict_of(NOWHERE, seen)
    said = {
        "sight": verdict.sight.value,
        "seen": verdict.seen,
        "how": verdict.how,
        "text": verdict.text,
    }
    os.write(writing, json.dumps(said).encode())


def _looks(cases: NumberedCases, job: dict[str, int]) -> Iterator[Look]:
    """The cases of a check with comparison; costly ones first, as they detect most mutants."""
    yield from by_states(cases, range(job["first"]))
    yield from by_vectors(cases)
    yield from as_checked(cases, range(job["checked"]))


def _alive(looks: Iterable[Look], writing: int) -> Iterator[Look]:
    """Limits the CPU time of each look; the system kills a child that takes more."""
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    for look in looks:
        allowed = int(process_time()) + PATIENCE_SECONDS
        resource.setrlimit(resource.RLIMIT_CPU, (allowed, most))
        yield look
        os.write(writing, ALIVE)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
