"""The faults that were found in engines: `docs/findings/faults.toml`, and tables made from it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from attrs import field, frozen

import kvcanon.spec.laws  # noqa: F401  # Importing the laws registers them.
from kvcanon.conformance.errors import UsageError
from kvcanon.spec.law import LAWS
from kvcanon.spec.stores import STORE_LAWS

FILE = Path("docs/findings/faults.toml")


@frozen
class EngineFault:
    """A fault of an engine's cache."""

    engine: str
    """The name of the engine's folder in docs/findings."""
    cache: str
    title: str
    page: str
    """A page in docs/findings, perhaps with an anchor."""
    laws: tuple[str, ...] = field(converter=tuple)
    """Ids of the laws that it breaks; none where no law can see it."""
    releases: tuple[str, ...] = field(converter=tuple)


def read_faults(checkout: Path) -> tuple[Mapping[str, str], tuple[EngineFault, ...]]:
    """Names of the engines by folder, and all faults. Raises: UsageError."""
    value = tomllib.loads((checkout / FILE).read_text("utf-8"))
    engines = value.pop("engines")
    faults = [
        EngineFault(engine, cache, **each)
        for engine, caches in value.items()
        for cache, listed in caches.items()
        for each in listed
    ]
    for fault in faults:
        unknown = [law_id for law_id in fault.laws if law_id not in {*LAWS, *STORE_LAWS}]
        unknown += [] if fault.engine in engines else [fault.engine]
        if unknown:
            raise UsageError(f"{FILE}: {fault.title!r} names {unknown[0]}, which there is not")
    return engines, tuple(faults)


def faults_of(law_id: str, faults: Sequence[EngineFault]) -> list[EngineFault]:
    """The faults that break a law."""
    return [each for each in faults if law_id in each.laws]


def release_table(checkout: Path) -> Iterator[str]:
    """The table of docs/findings.md: which cache of which release breaks which laws."""
    engines, faults = read_faults(checkout)
    yield "| engine | cache | release | laws broken, each with a fault that breaks it |"
    yield "|---|---|---|---|"
    for engine, cache in dict.fromkeys((each.engine, each.cache) for each in faults):
        of_cache = [each for each in faults if (each.engine, each.cache) == (engine, cache)]
        releases = sorted({release for each in of_cache for release in each.releases}, key=_order)
        for release in reversed(releases):
            here = [each for each in of_cache if release in each.releases]
            cell = ", ".join(_laws_cell(here))
            yield f"| {engines[engine]} | {cache} | {release} | {cell} |"


def _laws_cell(faults: Sequence[EngineFault]) -> Iterator[str]:
    first: dict[str, EngineFault] = {}
    for fault in faults:
        for law_id in fault.laws:
            first.setdefault(law_id, fault)
    order = [*LAWS, *STORE_LAWS]
    for law_id in sorted(first, key=order.index):
        yield f"[{law_id}](findings/{first[law_id].page})"
    without = [fault for fault in faults if not fault.laws]
    for fault in without:
        yield f"[no law]({f'findings/{fault.page}'})"


def _order(release: str) -> tuple[tuple[int, str], ...]:
    """Releases by their numbers, so that 0.5.9 comes before 0.5.12."""
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in release.split("."))
