"""All figures of a contest, as JSON values.

Times and rates at the top of a result are the medians of the runs below them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import asdict

from kvcanon.lab.bench.contest import CURVES, ContestOutcome, ContestPlan, Result
from kvcanon.lab.bench.contestants import Field
from kvcanon.lab.bench.growth import Point


def contest_json(
    workload: str, plan: ContestPlan, entrants: Field, outcome: ContestOutcome
) -> dict[str, object]:
    """Return what was measured, and all results."""
    return {
        "workload": workload,
        "rounds": plan.rounds,
        "stood_in_for": entrants.stubbed(),
        "left_out": dict(entrants.missing),
        "cells": [
            asdict(cell) | {"results": [_result(result) for result in results]}
            for cell, results in outcome.cells.items()
        ],
        "tails": [
            {"nodes": nodes} | asdict(cell) | {"results": [_result(result) for result in results]}
            for (nodes, cell), results in outcome.tails.items()
        ],
        "curves_page_size": CURVES.page_size,
        "full_hits": {name: asdict(hit) for name, hit in outcome.full_hits.items()},
        "with_tree": _curves(outcome.with_tree),
        "with_prompt": _curves(outcome.with_prompt),
    }


def _result(result: Result) -> dict[str, object]:
    return {
        "cache": result.contestant,
        "complete": result.complete,
        "requests_per_second": result.requests_per_second,
        "hit_rate": result.hit_rate,
        "loaded_rate": result.of(lambda run: run.loaded_rate),
        "hash_share": result.of(lambda run: run.hash_share),
        "cache_bytes": result.cache_bytes,
        "runs": [asdict(run) for run in result.runs],
    }


def _curves(curves: Mapping[str, Sequence[Point]]) -> dict[str, object]:
    return {name: [asdict(point) for point in points] for name, points in curves.items()}
