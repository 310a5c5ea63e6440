"""The kernels under NVIDIA's compute-sanitizer: what they read and write, and in which order.

memcheck finds accesses out of bounds, racecheck hazards on shared memory, initcheck reads of memory
that nobody wrote. Only our kernels are watched, by name, so that a pass takes seconds.
https://docs.nvidia.com/compute-sanitizer/ComputeSanitizer
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from time import perf_counter

from attrs import frozen

from kvcanon.lab.bench.gpu.kernel_pass import WRONG
from kvcanon.lab.bench.gpu.scenes import WrongBytes
from kvcanon.lab.tied_program import run_tied

TOOLS = ("memcheck", "racecheck", "initcheck")
BESIDE_CUDA = Path("/usr/local/cuda/bin/compute-sanitizer")
KERNEL = "move_pages"
"""In the names of our kernels."""
FOUND = 77
"""The exit code when the tool found something."""
LIMIT_SECONDS = 120


@frozen
class Watched:
    """What one tool said of the pass."""

    tool: str
    said: str
    """Its last line: how many errors or hazards."""
    seconds: float


def find_sanitizer() -> str | None:
    """The program, on the PATH or beside CUDA; None where there is none."""
    found = shutil.which("compute-sanitizer")
    return found or (str(BESIDE_CUDA) if BESIDE_CUDA.is_file() else None)


def watch_kernels(sanitizer: str) -> tuple[Watched, ...]:
    """Run the pass under each tool. Raises: WrongBytes where a tool finds something."""
    return tuple(_watched(sanitizer, tool) for tool in TOOLS)


def command_of(sanitizer: str, tool: str) -> list[str]:
    """The pass under one tool."""
    return [
        *(sanitizer, "--tool", tool, "--error-exitcode", str(FOUND), "--print-limit", "5"),
        *("--kernel-name", f"kernel_substring={KERNEL}"),
        *(sys.executable, "-m", "kvcanon.lab.bench.gpu.kernel_pass"),
    ]


def _watched(sanitizer: str, tool: str) -> Watched:
    began = perf_counter()
    # Each tensor is an allocation of its own then, whose bounds the tool knows.
    alone = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    done = run_tied(command_of(sanitizer, tool), timeout=LIMIT_SECONDS, env={**os.environ, **alone})
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    said = lines[-1] if lines else "nothing"
    if done.returncode == WRONG:
        raise WrongBytes(f"under {tool}: {said}")
    if done.returncode == FOUND:
        raise WrongBytes(f"{tool}: {said}; {_first_error(lines)}")
    if done.returncode != 0:
        raise RuntimeError(f"{tool} ended with {done.returncode}: {said}")
    return Watched(tool, said, perf_counter() - began)


def _first_error(lines: list[str]) -> str:
    errors = (line for line in lines if "Invalid" in line or "Error" in line or "hazard" in line)
    return next(errors, "no line says which")
