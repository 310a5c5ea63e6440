"""A measurement: draws, makes and judges a sample of mutants of the plain or native core."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from attrs import frozen

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.workers.workers import workers
from kvcanon.lab.mutants.campaign import judge_all
from kvcanon.lab.mutants.detection import MutantVerdict
from kvcanon.lab.mutants.equivalents import Core, read_reviewed, require_places
from kvcanon.lab.mutants.finder import all_places
from kvcanon.lab.mutants.judge import BUDGETS, accused
from kvcanon.lab.mutants.native.build import build
from kvcanon.lab.mutants.native.campaign import NATIVE_BUDGETS, judge_native
from kvcanon.lab.mutants.native.finder import all_spots
from kvcanon.lab.mutants.place import MutantPlace
from kvcanon.lab.mutants.sample import draw_sample
from kvcanon.lab.mutants.score import Measure

BUILD = Path("build/mutants")
"""Relative to the checkout. Kept between runs, so that only changed files are compiled."""


@frozen
class MeasurementSpec:
    """What to measure."""

    core: Core
    sample: int | None
    only: tuple[str, ...]
    """The ids of the mutants to judge; if empty, a sample."""
    effort: str
    seed: int
    jobs: int


Shown = Callable[[Sequence[MutantPlace], str], AbstractContextManager[Iterator[MutantPlace]]]
"""Shows the progress of a loop over places."""


def measure(spec: MeasurementSpec, checkout: Path, shown: Shown) -> Measure:
    """Draw, make and judge the mutants of a spec. Raises: UsageError."""
    if spec.effort not in BUDGETS:
        raise UsageError(f"no effort {spec.effort!r} for mutants; choose of {', '.join(BUDGETS)}")
    ways = {Core.REFERENCE: _of_reference, Core.NATIVE: _of_native}
    return ways[spec.core](spec, checkout, shown)


def _of_reference(spec: MeasurementSpec, checkout: Path, shown: Shown) -> Measure:
    places = all_places()
    reviewed = read_reviewed(checkout, spec.core)
    require_places(reviewed, places)
    chosen = _choose(spec, places)
    with workers(spec.jobs) as by:
        accusing = by.executor.submit(accused, spec.seed, BUDGETS[spec.effort])
        coming = judge_all(chosen, spec.seed, BUDGETS[spec.effort], by.executor)
        verdicts = _in_order(coming, chosen, shown)
        accusation = accusing.result()
    if accusation is not None:
        raise UsageError(
            f"with seed {spec.seed} the plain cache itself is accused; mend that: {accusation}"
        )
    return Measure(spec.core, spec.seed, spec.effort, len(places), verdicts, reviewed)


def _of_native(spec: MeasurementSpec, checkout: Path, shown: Shown) -> Measure:
    spots = all_spots(checkout)
    places = {place_id: spot.place for place_id, spot in spots.items()}
    reviewed = read_reviewed(checkout, spec.core)
    require_places(reviewed, places)
    chosen = _choose(spec, places)
    built = build(checkout, [spots[place.place_id] for place in chosen], checkout / BUILD)
    made = [place for place in chosen if place.place_id in built.numbers]
    budget = NATIVE_BUDGETS[spec.effort]
    with judge_native(built, made, spec.seed, budget, spec.jobs) as coming:
        verdicts = _in_order(coming, made, shown)
    return Measure(
        spec.core, spec.seed, spec.effort, len(places), verdicts, reviewed, built.dropped
    )


def _in_order(
    coming: Iterator[MutantVerdict], places: Sequence[MutantPlace], shown: Shown
) -> tuple[MutantVerdict, ...]:
    """All verdicts, in the order of the sources."""
    with shown(places, "mutants") as each:
        verdicts = [next(coming) for _ in each]
    verdicts.sort(
        key=lambda verdict: (verdict.place.path, verdict.place.line, verdict.place.place_id)
    )
    return tuple(verdicts)


def _choose(spec: MeasurementSpec, places: Mapping[str, MutantPlace]) -> list[MutantPlace]:
    """The named places, or a sample. Raises: UsageError."""
    for name in spec.only:
        if name not in places:
            raise UsageError(
                f"no mechanical mutant {name!r} of {spec.core}; `--json` prints the ids"
            )
    return [places[name] for name in spec.only] or draw_sample(
        places.values(), spec.sample, spec.seed
    )
