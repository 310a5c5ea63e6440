"""Builds the native core with all mutants of a sample in it, each switched off.

The sources are copied, changed and built as `make native` builds them. A change that does not
compile is left out, and the build goes on.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from attrs import frozen

from kvcanon.conformance.errors import UsageError
from kvcanon.lab.mutants.native.changes import CppChange
from kvcanon.lab.mutants.native.finder import FOLDER, Spot, sources_in
from kvcanon.lab.mutants.native.schemata import DECLARED, DEFINED, crossing, with_mutants
from kvcanon.lab.tied_program import run_tied

OTHER = Path("live/native")
"""The sources of the other module that the same CMake file builds."""
HEADER = "mutant.hpp"
MODULE = "module.cpp"
"""The source that is never mutated; it defines the variable that switches mutants on."""

ERROR = re.compile(r"/(?P<module>\w+)\.cpp:(?P<line>\d+):\d+: (?:fatal )?error: ")
"""The position in a compiler's error message."""

ROUNDS = 40
"""How often the build is tried, each time with fewer changes."""


@frozen
class Build:
    """A native core with mutants in it."""

    library: Path
    numbers: Mapping[str, int]
    """The number that switches a mutant on, by the id of its place."""
    dropped: tuple[str, ...]
    """The ids of places whose changes do not compile."""


def build(checkout: Path, spots: Sequence[Spot], folder: Path) -> Build:
    """Build the native core with the mutants of some places, in a folder. Raises: UsageError."""
    numbers = {spot.place.place_id: number for number, spot in enumerate(spots, start=1)}
    by_module: dict[str, dict[int, CppChange]] = {}
    for spot in spots:
        number = numbers[spot.place.place_id]
        by_module.setdefault(spot.place.module, {})[number] = spot.change
    dropped: set[int] = set()
    for changes in by_module.values():
        dropped.update(crossing(changes.items()))
    _copy(checkout, folder)
    _configure(folder)
    for _ in range(ROUNDS):
        _write(checkout, folder, by_module, dropped)
        broken = _guilty(_compile(folder), checkout, by_module, dropped)
        if not broken:
            break
        dropped |= broken
    else:
        raise UsageError("the native core does not compile, however many mutants are left out")
    found = sorted((folder / "build").glob("_core*"))
    return Build(
        next(path for path in found if path.suffix in {".so", ".pyd"}),
        {name: number for name, number in numbers.items() if number not in dropped},
        tuple(name for name, number in numbers.items() if number in dropped),
    )


def _copy(checkout: Path, folder: Path) -> None:
    """Copy the files of the build; unchanged files keep their modification time."""
    # CMake looks for the sources of the other module, too, which is not built.
    sources = [each for name in (FOLDER, OTHER) for each in (checkout / name).rglob("*.[ch]pp")]
    wanted = [checkout / "CMakeLists.txt", *sorted(sources)]
    for path in wanted:
        text = path.read_text(encoding="utf-8")
        if path.name == MODULE:
            text = f"{DEFINED}{text}"
        _keep(folder / path.relative_to(checkout), text)
    _keep(folder / HEADER, DECLARED)


def _keep(path: Path, text: str) -> None:
    """Write a file unless it has this text already."""
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _configure(folder: Path) -> None:
    if (folder / "build" / "build.ninja").is_file():
        return
    _run(
        _tool("cmake"), "-S", str(folder), "-B", str(folder / "build"), "-G", "Ninja",
        "-DCMAKE_BUILD_TYPE=Release", f"-DPython_EXECUTABLE={sys.executable}",
        f"-DCMAKE_MAKE_PROGRAM={_tool('ninja')}",
        f"-DCMAKE_CXX_FLAGS=-include {folder / HEADER}",
    )  # fmt: skip


def _write(
    checkout: Path,
    folder: Path,
    by_module: Mapping[str, Mapping[int, CppChange]],
    dropped: set[int],
) -> None:
    for source in sources_in(checkout):
        changes = by_module.get(source.module, {})
        kept = [(number, each) for number, each in changes.items() if number not in dropped]
        _keep(folder / FOLDER / f"{source.module}.cpp", with_mutants(source.text, kept))


def _compile(folder: Path) -> str:
    """Run the build. Returns its output if it fails, else an empty string."""
    command = [_tool("cmake"), "--build", str(folder / "build"), "--target", "_core"]
    command += ["--", "-k", "0"]
    done = run_tied(command)
    return f"{done.stdout}{done.stderr}" if done.returncode else ""


def _guilty(
    said: str,
    checkout: Path,
    by_module: Mapping[str, Mapping[int, CppChange]],
    dropped: Collection[int],
) -> set[int]:
    """The changes on the lines with compile errors. Raises: UsageError."""
    if not said:
        return set()
    sources = {source.module: source for source in sources_in(checkout)}
    guilty: set[int] = set()
    for match in ERROR.finditer(said):
        source = sources.get(match["module"])
        if source is None:
            continue
        line = int(match["line"])
        for number, change in by_module.get(source.module, {}).items():
            first, last = source.line(change.begin), source.line(change.end)
            if number not in dropped and first <= line <= last:
                guilty.add(number)
    if not guilty:
        raise UsageError(f"the native core does not compile: {said.strip().splitlines()[-1]}")
    return guilty


def _run(*command: str) -> None:
    done = run_tied(command)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["nothing was said"]
        raise UsageError(f"{Path(command[0]).name} failed: {said[-1]}")


def _tool(name: str) -> str:
    """Find a tool in this environment, or else on the PATH. Raises: UsageError."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise UsageError(
            f"{name} is not here, and the native core is built with it; run `make venv`"
        )
    return found
