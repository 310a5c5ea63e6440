"""Freedoms: the calls of a script to which a lawful cache may answer differently.

They are found by playing the script on each lawful variation of the plain cache. The call at which
a variation first answers differently is marked with the freedom that it uses.
"""

from __future__ import annotations

import json
from functools import cache

from attrs import asdict, evolve

from kvcanon.conformance.cases.case import Case
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.conformance.protocol.wire import to_json
from kvcanon.conformance.vectors import Script
from kvcanon.lab.variants.registry import VARIATIONS
from kvcanon.lab.variants.script_recorder import record_script
from kvcanon.lab.variants.script_runner import play_script
from kvcanon.lab.variants.variant import CHOSEN, VARIANT, varied
from kvcanon.spec.config import CANON, CacheConfig

BY_PROFILE = "profile."
"""The prefix of a mark that applies only to caches whose profile has this value."""


@cache
def lawful_caches() -> tuple[Adapter, ...]:
    """Return each variation by itself, and the variant."""
    return tuple(varied(name, [name]) for name in VARIATIONS)


def script_of(case: Case) -> Script:
    """Record a case's script from the plain cache, and mark where other answers are lawful."""
    script = record_script(case)
    marks: dict[int, list[str]] = {}

    def mark(index: int | None, adapter: Adapter) -> None:
        if index is not None:
            there = marks.setdefault(index, [])
            there += [each for each in freedoms_of(adapter) if each not in there]

    for each in lawful_caches():
        mark(_first_difference(script, each, case.config), each)
    last = _first_difference(script, VARIANT, case.config)
    if last is not None and last not in marks:
        # Only several freedoms together answer like this.
        mark(last, _fewest_variations(script, case.config, last))
    calls = tuple(
        evolve(each, may_differ=tuple(sorted(marks.get(index, ()))))
        for index, each in enumerate(script.calls)
    )
    return evolve(script, calls=calls)


def _first_difference(script: Script, adapter: Adapter, config: CacheConfig) -> int | None:
    difference = play_script(script, adapter, config)
    return None if difference is None else difference.index


def _fewest_variations(script: Script, config: CacheConfig, index: int | None) -> Adapter:
    """Return the variant with only those variations that it needs to differ at a call."""
    kept = list(CHOSEN)
    for name in CHOSEN:
        fewer = [each for each in kept if each != name]
        if _first_difference(script, varied("fewer", fewer), config) == index:
            kept = fewer
    return varied(" and ".join(kept), kept)


def freedoms_of(adapter: Adapter) -> list[str]:
    """Return a cache's marks: `profile.FIELD=VALUE` if it declares any, else its variations."""
    canon = asdict(CANON, recurse=False)
    declared = asdict(adapter.profile, recurse=False)
    departs = {name: value for name, value in declared.items() if value != canon[name]}
    return [
        f"{BY_PROFILE}{name}={one if isinstance(one, str) else json.dumps(to_json(one))}"
        for name, value in departs.items()
        for one in (sorted(value) if isinstance(value, frozenset) else (value,))
    ] or [adapter.name]
