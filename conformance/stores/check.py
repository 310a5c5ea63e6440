"""Judges a store: plays the witnesses of the laws and drawn cases, and gives each law its standing.

A law is *held* only where its premise was met; else it is *not exercised*, or *not offered*, where
the store lacks an ability that it takes. A law that some case broke is *broken*, and shown by the
smallest case that breaks it.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from enum import StrEnum
from pathlib import Path

from attrs import evolve, field, frozen

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.stores.adapter import StoreAdapter, StoreGround
from kvcanon.conformance.stores.case import StoreCase
from kvcanon.conformance.stores.draw import draw_case
from kvcanon.conformance.stores.fitted import fitted
from kvcanon.conformance.stores.play import play_case
from kvcanon.conformance.stores.played import Played, PlayedStep
from kvcanon.conformance.stores.reduce import reduce_store_case
from kvcanon.conformance.stores.witnesses import read_witnesses
from kvcanon.spec.law import LawClass
from kvcanon.spec.stores.store_law import STORE_LAWS, StoreLaw

STORE_EFFORTS: Mapping[str, int] = {"quick": 160, "standard": 1000, "deep": 10_000}
"""How many cases are drawn."""


IN_MEMORY = Path("/dev/shm")  # noqa: S108  # A new folder in it.
"""Where stores of files are judged, if no folder is named: there nothing waits for a disk."""


class StoreStanding(StrEnum):
    """What is known of a law after a check."""

    BROKEN = "broken"
    HELD = "held"
    NOT_EXERCISED = "not exercised"
    NOT_OFFERED = "not offered"


class StoreVerdict(StrEnum):
    """The verdict of a check."""

    HOLDS = "holds"
    DEPARTS = "departs"
    """Only laws of policy are broken."""
    BROKEN = "broken"
    NOT_JUDGED = "not judged"
    """No law, or less than half of those that it offers, was exercised."""


@frozen
class StoreFinding:
    """A broken law, with the smallest case that was found to break it."""

    law: StoreLaw
    words: str
    case: StoreCase
    steps: tuple[PlayedStep, ...]
    """The calls of the case up to the fault."""
    origin: str
    """The case that it was first seen in."""
    times: int
    """In how many cases the law was broken."""
    repeats: bool
    """Whether the case showed the fault a second time."""


@frozen
class StoreReport:
    """What a check of a store found."""

    name: str
    seed: int
    effort: str
    cases: int
    calls: int
    findings: tuple[StoreFinding, ...]
    standings: Mapping[str, StoreStanding]
    met: Mapping[str, int]
    doubted: Mapping[str, int] = field(factory=dict)
    """In how many cases a law seemed broken each time, and the machine was too late to tell."""

    @property
    def verdict(self) -> StoreVerdict:
        """The verdict."""
        if any(each.law.law_class is not LawClass.POLICY for each in self.findings):
            return StoreVerdict.BROKEN
        held = sum(each is not StoreStanding.NOT_OFFERED for each in self.standings.values())
        seen = sum(
            each in {StoreStanding.HELD, StoreStanding.BROKEN} for each in self.standings.values()
        )
        if not seen or 2 * seen < held:
            return StoreVerdict.NOT_JUDGED
        return StoreVerdict.DEPARTS if self.findings else StoreVerdict.HOLDS


@frozen
class _Seen:
    """A law that was seen broken for the first time."""

    case: StoreCase
    origin: str
    words: str
    steps: tuple[PlayedStep, ...]


Progress = Callable[[int, int], None]


def no_store_progress(done: int, of: int) -> None:
    """Show nothing."""


def check_store(
    adapter: StoreAdapter,
    effort: str = "quick",
    seed: int = 0,
    *,
    only: Collection[str] | None = None,
    progress: Progress = no_store_progress,
    folder: Path | None = None,
) -> StoreReport:
    """Judge a store by all laws of stores, or by some, in a new folder inside of `folder`."""
    laws = chosen_laws(only)
    first: dict[str, _Seen] = {}
    times, met, doubted, calls = Counter[str](), Counter[str](), Counter[str](), 0
    with ground_of(adapter, folder) as ground:
        cases = list(cases_of(adapter, effort, seed))
        for number, (origin, case) in enumerate(cases):
            played = play_case(adapter, ground, case)
            calls += len(played.steps)
            met.update(played.met)
            times.update({each.law.law_id for each in played.broken})
            doubted.update({each.law.law_id for each in played.doubted})
            for each in played.broken:
                seen = evolve(case, actions=case.actions[: each.action + 1])
                steps = tuple(played.steps[: each.step + 1])
                first.setdefault(each.law.law_id, _Seen(seen, origin, each.words, steps))
            progress(number + 1, len(cases))
        found = [
            _reduced(
                lambda case: play_case(adapter, ground, case),
                STORE_LAWS[law_id],
                first[law_id],
                times[law_id],
            )
            for law_id in STORE_LAWS
            if law_id in first and law_id in laws
        ]
    findings = tuple(evolve(each, case=fitted(each.case, adapter.offer)) for each in found)
    standings = {law_id: _standing(law, adapter, first, met) for law_id, law in laws.items()}
    doubts = {law_id: count for law_id, count in doubted.items() if law_id in laws}
    return StoreReport(
        adapter.name, seed, effort, len(cases), calls, findings, standings, met, doubts
    )


def cases_of(adapter: StoreAdapter, effort: str, seed: int) -> Iterator[tuple[str, StoreCase]]:
    """The cases of a check with their origins: the witnesses first, then what the seed draws."""
    for law_id, witnesses in read_witnesses().items():
        if STORE_LAWS[law_id].needs <= adapter.offer.abilities:
            yield from ((f"witness of {law_id}", case) for case in witnesses)
    for number in range(STORE_EFFORTS[effort]):
        yield f"case {number} of seed {seed}", draw_case(adapter.offer, seed, number)


class ground_of:  # noqa: N801  # It is used as a function.
    """The ground of a store in a folder of its own, which is removed afterwards."""

    def __init__(self, adapter: StoreAdapter, folder: Path | None = None) -> None:
        place = folder or (IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else None)
        self._folder = tempfile.TemporaryDirectory(
            prefix="kvcanon-store-", dir=place, ignore_cleanup_errors=True
        )
        self._ground = adapter.ground(Path(self._folder.name))

    def __enter__(self) -> StoreGround:
        return self._ground.__enter__()

    def __exit__(self, *error: object) -> None:
        self._ground.__exit__(*error)  # type: ignore[arg-type]
        self._folder.cleanup()


def chosen_laws(only: Collection[str] | None) -> dict[str, StoreLaw]:
    """The laws of some ids; all of them by default. Raises: UsageError."""
    if only is None:
        return dict(STORE_LAWS)
    wanted = [each.upper() for each in only]
    for each in wanted:
        if each not in STORE_LAWS:
            known = f"{next(iter(STORE_LAWS))} to {list(STORE_LAWS)[-1]}"
            raise UsageError(f"no law of stores {each!r}; there are {known}")
    return {law_id: law for law_id, law in STORE_LAWS.items() if law_id in wanted}


def _standing(
    law: StoreLaw, adapter: StoreAdapter, broken: Collection[str], met: Mapping[str, int]
) -> StoreStanding:
    if law.law_id in broken:
        return StoreStanding.BROKEN
    if not law.needs <= adapter.offer.abilities:
        return StoreStanding.NOT_OFFERED
    return StoreStanding.HELD if met.get(law.law_id) else StoreStanding.NOT_EXERCISED


def _reduced(
    play: Callable[[StoreCase], Played],
    law: StoreLaw,
    seen: _Seen,
    times: int,
) -> StoreFinding:
    """The finding in its smallest case; as it was seen, if that does not show it again."""
    best: list[Played] = []

    def breaks(smaller: StoreCase) -> bool:
        played = play(smaller)
        if first_break(played, law) is None:
            return False
        best.append(played)
        return True

    smallest, repeats = reduce_store_case(seen.case, breaks)
    if not best:
        return StoreFinding(law, seen.words, smallest, seen.steps, seen.origin, times, repeats)
    found = next(each for each in best[-1].broken if each.law is law)
    steps = tuple(best[-1].steps[: found.step + 1])
    return StoreFinding(law, found.words, smallest, steps, seen.origin, times, repeats)


def first_break(played: Played, law: StoreLaw) -> str | None:
    """The first message of a law that a case broke."""
    return next((each.words for each in played.broken if each.law is law), None)
