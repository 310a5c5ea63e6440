"""Lines of the native core that the cases of a check of the fast cache visit, as gcov counts them.

The core is built once more, into a folder of its own, by a compiler that counts lines. Processes of
their own play the cases with that core, each a share of them; gcc adds up their counts.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from typing import Any

from attrs import frozen

from kvcanon.conformance.check.plan import Effort, effort_named
from kvcanon.conformance.check.result import Tally
from kvcanon.conformance.errors import UsageError
from kvcanon.lab.reach.count import numbered_cases, parts_of, play_part
from kvcanon.lab.reach.measure import OnPart

CACHE, CORE = "optimized", "kvcanon.optimized._core"
BUILD, SOURCES = "build/gcov", "optimized/native/"
COUNTING = "--coverage -O0 -fprofile-update=atomic"
"""What the compiler is asked for. Without optimization, no line is merged with another."""

_IS_CODE = re.compile(r"\w")
"""A line of brackets alone is none: the compiler destroys values there when something is raised."""


@frozen
class NativeLine:
    """A line of the core that a compiler made code of."""

    path: str
    """The file, relative to the checkout."""
    number: int
    function: str
    """The name of the function around it, without its namespace and class."""
    text: str
    visited: bool


def measure_native(
    checkout: Path, seeds: Sequence[int], effort: Effort, jobs: int, done: OnPart
) -> list[NativeLine]:
    """Build the core, play the checks of some seeds on it, and say what was visited."""
    folder = checkout / BUILD
    done("building the core that counts lines", 0, None)
    core = _build(checkout, folder)
    for at, seed in enumerate(seeds):
        _play(core, seed, effort, jobs)
        done("native reach, seeds", at + 1, len(seeds))
    return sorted(_lines(checkout, folder), key=lambda each: (each.path, each.number))


# The core.


def _build(checkout: Path, folder: Path) -> Path:
    """Build the core that counts lines, and forget what was counted; returns its file."""
    cmake = _tool("cmake")
    _run(
        *(cmake, "-S", str(checkout), "-B", str(folder), "-DCMAKE_BUILD_TYPE=Debug"),
        *(f"-DCMAKE_CXX_FLAGS={COUNTING}", f"-DPython_EXECUTABLE={sys.executable}"),
    )
    _run(cmake, "--build", str(folder), "--target", "_core", "--parallel")
    for counts in folder.rglob("*.gcda"):
        counts.unlink()
    return next(folder.glob("_core*.so"))


def _tool(name: str) -> str:
    """A program, beside this Python or on the path. Raises: UsageError."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        raise UsageError(f"--native needs {name}; install it")
    return found


def _run(*command: str) -> bytes:
    """Run a program, and return what it printed. Raises: UsageError."""
    done = subprocess.run(command, capture_output=True, check=False)  # noqa: S603
    if done.returncode:
        words = done.stderr.decode(errors="replace")[-2_000:] or done.stdout.decode()[-2_000:]
        raise UsageError(f"{' '.join(command[:2])} ended with {done.returncode}: {words}")
    return done.stdout


# The cases.


def _play(core: Path, seed: int, effort: Effort, jobs: int) -> None:
    """Play the check of a seed in some processes. Each must end well, or it leaves no counts."""
    code = f"from {__name__} import play_share; import sys; play_share(*sys.argv[1:])"
    shares = [
        subprocess.Popen(  # noqa: S603  # Our own interpreter.
            [sys.executable, "-c", code, str(core), effort.name, str(seed), str(at), str(jobs)],
            env={**os.environ, "PYTHONHASHSEED": "0"},
        )
        for at in range(jobs)
    ]
    ends = [share.wait() for share in shares]
    if any(ends):
        raise UsageError("a process that played cases did not end well")


def play_share(core: str, effort: str, seed: str, at: str, of: str) -> None:
    """Play one share of the parts of a check of the fast cache, on a core of its own."""
    loader = ExtensionFileLoader(CORE, core)
    sys.modules[CORE] = module = module_from_spec(ModuleSpec(CORE, loader, origin=core))
    loader.exec_module(module)
    chosen = effort_named(effort)
    for part in list(parts_of(chosen))[int(at) :: int(of)]:
        play_part(numbered_cases(CACHE, int(seed), part.stage), chosen, part, _ignore)


def _ignore(_: Tally) -> None:
    """The core counts by itself."""


# What gcov says.


def _lines(checkout: Path, folder: Path) -> Iterator[NativeLine]:
    """The lines of the core's sources, each once, whatever includes them."""
    counts: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    spans: dict[str, dict[tuple[int, int], str]] = defaultdict(dict)
    notes = sorted(map(str, (folder / "CMakeFiles" / "_core.dir").rglob("*.gcno")))
    for report in _run(_tool("gcov"), "--json-format", "--stdout", *notes).splitlines():
        for file in json.loads(report)["files"] if report.startswith(b"{") else ():
            if SOURCES in file["file"]:
                path = SOURCES + file["file"].partition(SOURCES)[2]
                _add(file, counts[path], spans[path])
    for path, by_line in counts.items():
        text = (checkout / path).read_text("utf-8").splitlines()
        for number, count in by_line.items():
            line = text[number - 1].strip()
            if _IS_CODE.search(line):
                function = _function_at(spans[path], number)
                yield NativeLine(path, number, function, line, count > 0)


def _add(file: dict[str, Any], counts: dict[int, int], spans: dict[tuple[int, int], str]) -> None:
    for line in file["lines"]:
        counts[line["line_number"]] += line["count"]
    for function in file["functions"]:
        span = function["start_line"], function["end_line"]
        spans[span] = short_name(function["demangled_name"])


def _function_at(spans: dict[tuple[int, int], str], number: int) -> str:
    """The outermost function around a line: lambdas are part of what they are in."""
    around = [span for span in spans if span[0] <= number <= span[1]]
    return spans[min(around, key=lambda span: (span[0], -span[1]))] if around else ""


def short_name(demangled: str) -> str:
    """The name of a function alone: `insert` of `kvcanon::insert(kvcanon::State&, ...)`."""
    name = demangled.replace("(anonymous namespace)", "").replace("[abi:cxx11]", "")
    while (shorter := re.sub(r"<[^<>]*>", "", name)) != name:
        name = shorter
    return re.split(r"::|\s", name.partition("(")[0].strip())[-1]
