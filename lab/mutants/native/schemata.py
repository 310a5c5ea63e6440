"""Mutant schemata: one source with many changes in it; a number switches one of them on.

A conditional chooses between an expression and its mutants, and an `if` encloses a statement that a
mutant removes. So one build holds all mutants of a sample.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from attrs import Factory, define

from kvcanon.lab.mutants.native.changes import CppChange

AWAKE = "kvcanon_mutant"
"""The variable with the number of the active mutant; 0 if none is active."""

DECLARED = f'extern "C" __attribute__((visibility("default"))) int {AWAKE};\n'
DEFINED = f"{DECLARED}int {AWAKE} = 0;\n"


@define
class _Stretch:
    """A span of text with its changes, and the spans inside it."""

    begin: int
    end: int
    changes: list[tuple[int, CppChange]] = Factory(list)
    inner: list[_Stretch] = Factory(list)


def with_mutants(text: str, changes: Iterable[tuple[int, CppChange]]) -> str:
    """Put numbered changes into a source, all switched off; no two may overlap partly."""
    return _rendered(text, 0, len(text), _nested(changes))


def crossing(changes: Iterable[tuple[int, CppChange]]) -> list[int]:
    """The numbers of the changes that partly overlap an earlier one and cannot be combined."""
    kept: list[CppChange] = []
    dropped = []
    for number, change in changes:
        if any(_cross(change, other) for other in kept):
            dropped.append(number)
        else:
            kept.append(change)
    return dropped


def _cross(one: CppChange, other: CppChange) -> bool:
    first, second = sorted((one, other), key=lambda each: (each.begin, -each.end))
    return first.begin < second.begin < first.end < second.end


def _nested(changes: Iterable[tuple[int, CppChange]]) -> list[_Stretch]:
    """The spans in the order of the text, with narrower spans inside wider ones."""
    tops: list[_Stretch] = []
    around: list[_Stretch] = []
    for number, change in sorted(changes, key=lambda each: _order(each[1])):
        while around and around[-1].end <= change.begin:
            around.pop()
        here = around[-1] if around else None
        if here is None or (here.begin, here.end) != (change.begin, change.end):
            stretch = _Stretch(change.begin, change.end)
            (here.inner if here else tops).append(stretch)
            around.append(stretch)
            here = stretch
        here.changes.append((number, change))
    return tops


def _order(change: CppChange) -> tuple[int, int]:
    return change.begin, -change.end


def _rendered(text: str, begin: int, end: int, stretches: Sequence[_Stretch]) -> str:
    return "".join(_pieces(text, begin, end, stretches))


def _pieces(text: str, begin: int, end: int, stretches: Sequence[_Stretch]) -> Iterator[str]:
    for stretch in stretches:
        yield text[begin : stretch.begin]
        yield _alternatives(stretch, _rendered(text, stretch.begin, stretch.end, stretch.inner))
        begin = stretch.end
    yield text[begin:end]


def _alternatives(stretch: _Stretch, said: str) -> str:
    """A span's text or the text of its active mutant, with the line count unchanged."""
    for number, change in stretch.changes:
        if change.is_removal:
            said = f"{{ if ({AWAKE} != {number}) {{ {said} }} }}"
        else:
            other = " ".join(change.replacement.split())
            truth = "static_cast<bool>" if change.is_condition else ""
            said = f"({AWAKE} == {number} ? {truth}({other}) : {truth}({said}))"
    return said
