"""Which planted faults show to a judge who may call some methods of a cache only.

`python -m kvcanon.lab.mutants.by_methods` judges each fault from outside, with the six operations
alone and with more and more methods, and writes `by_methods.json`: for each fault the number of the
first step of `IN_TURN` at which it was found. The table in docs/adapters.md is made from it.

A fault that was found with fewer methods is not judged again with more. Faults that the file has
are not judged again: empty it to `{}` to measure all, which takes half an hour on two cores.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.check.trial import Trial
from kvcanon.conformance.judge import JudgeConfig
from kvcanon.conformance.protocol.adapter import Adapter, Capability, Offer
from kvcanon.conformance.protocol.tree import ESSENTIAL
from kvcanon.lab.mutants.faulty import mutated
from kvcanon.lab.mutants.planted import MUTANTS
from kvcanon.lab.mutants.planted.entry import Mutant
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.transfer import TransferEngine
from kvcanon.spec.types import WritePolicy

IN_TURN: tuple[tuple[Capability, ...], ...] = (
    (Capability.EVICT,),
    (Capability.TAKE_EVENTS,),
    (Capability.RESET,),
    (Capability.READ, Capability.WRITE),
    (Capability.FREE_SLOTS,),
    (
        Capability.LOAD_BACK,
        Capability.INSERT_HOST,
        Capability.EVICT_HOST,
        Capability.POLL,
        Capability.FLUSH,
    ),
)
"""What is most often added to the operations that every cache has, one after the other. A cache has
no host tier before it has all methods of one."""

CASES = 40
"""Cases that each fault is judged in, at each step."""

DATA = "by_methods.json"


class SomeMethods:
    """A cache of which some methods are shown."""

    def __init__(self, cache: Cache, shown: Collection[str]) -> None:
        self.config = cache.config
        for name in shown:
            setattr(self, name, getattr(cache, name))


def with_methods(mutant: Mutant, step: int) -> Adapter:
    """The adapter of a faulty cache that has the methods up to a step."""
    more = {each.value for group in IN_TURN[:step] for each in group}
    shown = {*ESSENTIAL, *more}
    faulty = mutated(mutant).make

    def make(config: CacheConfig, engine: TransferEngine | None = None) -> Any:  # noqa: ANN401  # It has the methods of a TreeCache.
        return SomeMethods(cast("Cache", faulty(config, engine=engine)), shown)

    has_host = step == len(IN_TURN)
    policies = tuple(WritePolicy) if has_host else (WritePolicy.NONE,)
    offer = Offer(states_within=True, write_policies=policies)
    return Adapter(mutant.name, make, offer)


def found_at(mutant: Mutant) -> int | None:
    """The first step at which a fault is found from outside; None if only states show it."""
    for step in range(len(IN_TURN) + 1):
        adapter = with_methods(mutant, step)
        trial = Trial(adapter, JudgeConfig(black_box=True))
        for number in range(CASES):
            case = draw_case(number, adapter.offer)
            if trial.play(case)[0] is not None:
                return step
    return None


def measured() -> Mapping[str, int | None]:
    """What was measured, by the name of the fault."""
    text = files("kvcanon.lab.mutants").joinpath(DATA).read_text(encoding="utf-8")
    found: Mapping[str, int | None] = json.loads(text)
    return found


def main() -> None:
    """Measure the faults that the file beside this module lacks, and write it."""
    known = measured()
    found = {
        each.name: known[each.name] if each.name in known else found_at(each) for each in MUTANTS
    }
    Path(__file__).with_name(DATA).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
