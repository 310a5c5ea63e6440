"""Finds places of the native core: where its sources can be changed, and the id of each change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from attrs import frozen

from kvcanon.lab.mutants.native.changes import CppChange, changes_in
from kvcanon.lab.mutants.native.functions import functions_of
from kvcanon.lab.mutants.native.tokens import CppSource
from kvcanon.lab.mutants.place import MutantPlace
from kvcanon.lab.reach.native_tables import is_uncalled, is_unread

FOLDER = Path("optimized/native")
"""Relative to the checkout."""

UNCHANGED = ("bind_*", "check", "module", "sha256*")
"""Sources that are not mutated: the Python API, the audit, and hashing, whose code path depends on
the processor and which has tests of its own."""


@frozen
class Spot:
    """A place, and the change that is made there."""

    place: MutantPlace
    change: CppChange


def sources_in(checkout: Path) -> list[CppSource]:
    """The sources to mutate."""
    paths = sorted((checkout / FOLDER).glob("*.cpp"))
    kept = [path for path in paths if not any(path.match(f"{each}.cpp") for each in UNCHANGED)]
    return [CppSource(path.stem, path.read_text(encoding="utf-8")) for path in kept]


def all_spots(checkout: Path) -> Mapping[str, Spot]:
    """Every place of the native core that a check of the fast cache can reach, by id."""
    spots = (spot for source in sources_in(checkout) for spot in spots_in(source))
    return {spot.place.place_id: spot for spot in spots if not _is_apart(spot.place)}


def _is_apart(place: MutantPlace) -> bool:
    """Whether nothing that a check sees depends on a place, which has tests of its own."""
    function = place.place_id.partition(":")[0].rpartition(".")[2]
    file = f"{place.module}.cpp"
    return is_uncalled(file, function) or is_unread(file, function)


def spots_in(source: CppSource) -> Iterator[Spot]:
    """The places of a source."""
    counted: Counter[str] = Counter()
    for function in functions_of(source):
        for change in changes_in(source, function):
            prefix = f"{source.module}.{function.name}:{change.name}"
            counted[prefix] += 1
            path = f"{FOLDER}/{source.module}.cpp"
            old, new = _lines(source.text, change)
            line = source.line(change.begin)
            yield Spot(MutantPlace(f"{prefix}:{counted[prefix]}", path, line, old, new), change)


def _lines(text: str, change: CppChange) -> tuple[str, str]:
    """The lines of a change, before and after it, each joined to one line."""
    first = text.rfind("\n", 0, change.begin) + 1
    last = text.find("\n", change.end)
    before, after = text[first : change.begin], text[change.end : last]
    new = f"{before}{change.replacement}{after}"
    return " ".join(text[first:last].split()), " ".join(new.split()) or "nothing"
