"""The tables of docs/limits.md on the lines of the native core, as Markdown.

`native.toml` says which lines serve other interfaces than `Cache`, which no case of a check calls,
and why others are never visited.
"""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from attrs import frozen

from kvcanon.lab.reach.native import SOURCES, NativeLine

MOST_UNVISITED = 0.03
"""The largest share of the lines that judged calls can reach which no case may visit."""
BINDINGS = "bind_"
"""How the names of files begin that have the Python bindings."""
REASONS = Path(__file__).with_name("native.toml")


@frozen
class Reason:
    """Why some lines are not visited: those of whole files, or of functions in them."""

    files: frozenset[str]
    functions: frozenset[str]
    """Empty for all that is in the files."""
    why: str
    uncalled: bool = False
    """Whether no line of them is ever visited."""

    def covers(self, line: NativeLine) -> bool:
        """Whether a line is one of them."""
        return self.names(line.path.removeprefix(SOURCES), line.function)

    def names(self, file: str, function: str) -> bool:
        """Whether it is about a function of a file."""
        return file in self.files and (not self.functions or function in self.functions)


@frozen
class NativeReach:
    """The lines of the core, sorted by what they are for and whether they were visited."""

    lines: Sequence[NativeLine]

    def reachable(self) -> list[NativeLine]:
        """The lines that the judged calls can reach; a line that was visited is one of them."""
        return [line for line in self.lines if line.visited or not reason_of(line, "apart")]

    def unvisited(self) -> list[NativeLine]:
        """Those of them that no case visited."""
        return [line for line in self.reachable() if not line.visited]

    @property
    def reached(self) -> bool:
        """Whether few enough are not visited, each for a reason."""
        missed = self.unvisited()
        few = len(missed) <= MOST_UNVISITED * len(self.reachable())
        called = any(_is_in_uncalled(line) for line in self.lines if line.visited)
        return few and not called and all(reason_of(line, "unvisited") for line in missed)


@cache
def reasons(kind: str) -> tuple[Reason, ...]:
    """The reasons of a kind: `apart`, `unvisited` or `unread`."""
    return tuple(
        Reason(
            frozenset(each["files"]),
            frozenset(each.get("functions", ())),
            each["why"],
            each.get("uncalled", False),
        )
        for each in tomllib.loads(REASONS.read_text("utf-8"))[kind]
    )


def reason_of(line: NativeLine, kind: str) -> Reason | None:
    """The first reason of a kind that covers a line."""
    return next((each for each in reasons(kind) if each.covers(line)), None)


def is_uncalled(file: str, function: str) -> bool:
    """Whether a check never calls a function of the core, named without its class."""
    return any(each.uncalled and each.names(file, function) for each in reasons("apart"))


def is_unread(file: str, function: str) -> bool:
    """Whether nothing that a check sees depends on a function, named without its class."""
    return any(each.names(file, function) for each in reasons("unread"))


def _is_in_uncalled(line: NativeLine) -> bool:
    # What binds the core to Python runs when it is imported, and is not mutated.
    if Path(line.path).name.startswith(BINDINGS):
        return False
    return is_uncalled(line.path.removeprefix(SOURCES), line.function)


def native_tables(found: NativeReach) -> Iterator[str]:
    """All tables, as lines."""
    lines, reachable, missed = found.lines, found.reachable(), found.unvisited()
    yield "| lines of `optimized/native` with code | |"
    yield "|---|---:|"
    yield _row("all", f"{len(lines):,}")
    yield _row("serve other interfaces than `Cache`", f"{len(lines) - len(reachable):,}")
    yield _row("the calls of a check can reach", f"{len(reachable):,}")
    share = f"{len(missed) / max(1, len(reachable)):.1%}".replace("%", " %")
    yield _row("of them no case visits", f"{len(missed):,} ({share})")
    yield ""
    yield "| serve other interfaces | lines not visited | why |"
    yield "|---|---:|---|"
    for reason in reasons("apart"):
        count = sum(not line.visited and reason_of(line, "apart") == reason for line in lines)
        yield _row(_what(reason), f"{count:,}", reason.why)
    yield ""
    yield "| never visited | lines | why |"
    yield "|---|---|---|"
    by_function: dict[tuple[str, str], list[NativeLine]] = defaultdict(list)
    for line in missed:
        by_function[line.path, line.function].append(line)
    for (path, function), some in by_function.items():
        numbers = ", ".join(str(line.number) for line in some)
        first = reason_of(some[0], "unvisited")
        yield _row(f"`{path}`: `{function}`", numbers, first.why if first else "")


def _what(reason: Reason) -> str:
    files = ", ".join(f"`{each}`" for each in sorted(reason.files))
    functions = ", ".join(f"`{each}`" for each in sorted(reason.functions))
    return f"{files}: {functions}" if functions else files


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
