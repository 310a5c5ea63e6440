"""How much a check played, and what it did not, in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from kvcanon.conformance.check.plan import CheckStage
from kvcanon.conformance.check.result import CheckResult, Unplayed

MINUTES = "--minutes"
"""The option of the command line that gives a check more time."""


def played(result: CheckResult) -> str:
    """How many cases each stage played, and what was not offered, for the end of a verdict."""
    return " ".join([f"Played {_listed(result)}.", *not_offered(result)])


def _listed(result: CheckResult) -> str:
    short = {each.stage for each in result.unplayed}
    parts = [
        f"{stage.cases:,} of {stage.asked:,} {_units(stage.name)}"
        if stage.name in short and stage.asked is not None
        else f"{stage.cases:,} {_units(stage.name)}"
        for stage in result.stages
        if stage.cases or stage.name in short
    ]
    return ", ".join(parts) or "nothing"


def _units(stage: CheckStage) -> str:
    return "vectors" if stage is CheckStage.VECTORS else f"{stage} cases"


def not_offered(result: CheckResult) -> Iterator[str]:
    """What the caches were not judged by, a sentence for each reason."""
    if declined := sum(stage.declined for stage in result.stages):
        there = sum(stage.cases + stage.unoffered for stage in result.stages)
        refused = f"{declined:,} of {there:,} cases not offered"
        yield f"{refused}: the factory refused their configuration."
    for stage in result.stages:
        left_out = stage.unoffered - stage.declined
        if stage.name is CheckStage.VECTORS and left_out:
            there = stage.cases + stage.unoffered
            unoffered = f"{left_out:,} of {there:,} vectors not offered"
            yield f"{unoffered}: they need what the adapter's Offer lacks."
    if slow := sum(stage.too_slow for stage in result.stages):
        there = sum(stage.cases for stage in result.stages)
        yield f"{slow:,} of {there:,} cases left: large, and too slow for this machine."


def incomplete(result: CheckResult) -> str:
    """What was not played, and how to play it."""
    missing = [f"played {', '.join(map(_missing, result.unplayed))}"] if result.unplayed else []
    return f"INCOMPLETE: {'; '.join([*missing, *to_complete(result)])}"


def to_complete(result: CheckResult) -> Iterator[str]:
    """What makes a check complete: time, or an offer of what the factory makes."""
    if result.unplayed:
        yield f"{MINUTES} {result.minutes_needed} gives time for the rest"
    for cache in result.caches:
        if cache.is_mostly_refused:
            tally = cache.tally
            yield (
                f"the factory of {cache.name} refused {tally.declined:,} of "
                f"{tally.cases + tally.unoffered:,} cases, and its adapter offers them; declare in "
                "an Offer what it supports"
            )


def _missing(each: Unplayed) -> str:
    return f"{each.played:,} of {each.asked:,} {_units(each.stage)}"
