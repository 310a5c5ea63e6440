"""A measurement: a sample of mutants of either core is drawn, made and judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from attrs import frozen

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.mutants.campaign import judge_all
from kvcanon.conformance.mutants.detection import MutantVerdict
from kvcanon.conformance.mutants.equivalents import Core, read_reviewed, require_places
from kvcanon.conformance.mutants.finder import all_places
from kvcanon.conformance.mutants.judge import BUDGETS, accused
from kvcanon.conformance.mutants.native.build import build
from kvcanon.conformance.mutants.native.campaign import NATIVE_BUDGETS, judge_native
from kvcanon.conformance.mutants.native.finder import all_spots
from kvcanon.conformance.mutants.place import MutantPlace
from kvcanon.conformance.mutants.sample import drawn
from kvcanon.conformance.mutants.score import Measure
from kvcanon.conformance.search.campaign import workers

BUILD = Path("build/mutants")
"""From the checkout on: what is compiled there once need not be compiled again."""


@frozen
class MeasurementSpec:
    """What is to be measured."""

    core: Core
    sample: int | None
    only: tuple[str, ...]
    """The ids of the mutants; none given, a sample."""
    effort: str
    seed: int
    jobs: int


Shown = Callable[[Sequence[MutantPlace], str], AbstractContextManager[Iterator[MutantPlace]]]
"""Shows how far something has come that is done for each of some places."""


def measure(asked: MeasurementSpec, checkout: Path, shown: Shown) -> Measure:
    """Measure what was asked for. Raises: UsageError."""
    if asked.effort not in BUDGETS:
        raise UsageError(f"no effort {asked.effort!r} for mutants; choose of {', '.join(BUDGETS)}")
    ways = {Core.REFERENCE: _of_reference, Core.NATIVE: _of_native}
    return ways[asked.core](asked, checkout, shown)


def _of_reference(asked: MeasurementSpec, checkout: Path, shown: Shown) -> Measure:
    places = all_places()
    reviewed = read_reviewed(checkout, asked.core)
    require_places(reviewed, places)
    chosen = _chosen(asked, places)
    with workers(asked.jobs) as by:
        wrong = by.executor.submit(accused, asked.seed, BUDGETS[asked.effort])
        coming = judge_all(chosen, asked.seed, BUDGETS[asked.effort], by.executor)
        verdicts = _told(coming, chosen, shown)
        told = wrong.result()
    if told is not None:
        raise UsageError(
            f"with seed {asked.seed} the plain cache itself is accused; mend that: {told}"
        )
    return Measure(asked.core, asked.seed, asked.effort, len(places), verdicts, reviewed)


def _of_native(asked: MeasurementSpec, checkout: Path, shown: Shown) -> Measure:
    spots = all_spots(checkout)
    places = {place_id: spot.place for place_id, spot in spots.items()}
    reviewed = read_reviewed(checkout, asked.core)
    require_places(reviewed, places)
    chosen = _chosen(asked, places)
    built = build(checkout, [spots[place.place_id] for place in chosen], checkout / BUILD)
    made = [place for place in chosen if place.place_id in built.numbers]
    budget = NATIVE_BUDGETS[asked.effort]
    with judge_native(built, made, asked.seed, budget, asked.jobs) as coming:
        verdicts = _told(coming, made, shown)
    return Measure(
        asked.core, asked.seed, asked.effort, len(places), verdicts, reviewed, built.dropped
    )


def _told(
    coming: Iterator[MutantVerdict], places: Sequence[MutantPlace], shown: Shown
) -> tuple[MutantVerdict, ...]:
    """The verdicts in the order of the sources, as many as there are places."""
    with shown(places, "mutants") as each:
        verdicts = [next(coming) for _ in each]
    verdicts.sort(
        key=lambda verdict: (verdict.place.path, verdict.place.line, verdict.place.place_id)
    )
    return tuple(verdicts)


def _chosen(asked: MeasurementSpec, places: Mapping[str, MutantPlace]) -> list[MutantPlace]:
    """The places that were asked for. Raises: UsageError."""
    for name in asked.only:
        if name not in places:
            raise UsageError(
                f"no mechanical mutant {name!r} of {asked.core}; `--json` prints the ids"
            )
    return [places[name] for name in asked.only] or drawn(places.values(), asked.sample, asked.seed)
