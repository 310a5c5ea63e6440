"""Reproducing: what the script of a failure stands on.

A script makes the calls that led to the failure, one a line, on a cache that is judged all the
while. The line at which a law is broken raises, so that a debugger stops there. Where all lines
went well, or where the cache now refuses what it granted when the script was written, the case
itself is played: its clients go on from whatever they are answered.

What readers get wrong: a script that ends with exit code 0 says that its own case holds. Whether
the cache does, `kvcanon check` says.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kvcanon.conformance.adapters.adapter import CopyControl
from kvcanon.conformance.adapters.naming import adapter_named
from kvcanon.conformance.cases.case import case_from_json
from kvcanon.conformance.judging.play import Judges, make_judged
from kvcanon.conformance.judging.trial import Trial
from kvcanon.conformance.stamps import stamp, write_stamps
from kvcanon.spec.cache import Cache
from kvcanon.spec.errors import CacheError
from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.law import LAWS
from kvcanon.spec.operations import HostPayload
from kvcanon.spec.types import FULL, MAMBA, SWA, Component, Counts, Key

__all__ = ["fetched", "judged", "write_stamps"]


@contextmanager
def judged(
    name: str,
    case: Mapping[str, Any],
    *,
    laws: Sequence[str] = (),
    black_box: bool = False,
    against: str | None = None,
) -> Iterator[tuple[Cache, CopyControl | None]]:
    """Make the cache of this name, as a case has it, and judge what is called inside.

    Yields the cache, and the hand on its copies. The laws are all, unless some are given.
    Raises: LawsBroken, at the call; SystemExit at the end, where only the case as a whole shows
    what is wrong; Fault: there is no such cache.
    """
    played = case_from_json(case)
    trial = Trial(
        adapter_named(name),
        Judges(black_box, tuple(LAWS[law_id] for law_id in laws)),
        None if against is None else adapter_named(against),
    )
    subject, judge = make_judged(trial.adapter, played.config, trial.judges)
    try:
        yield judge, subject.copies
    except CacheError as refusal:
        sys.stdout.write(f"The cache now refuses what it granted: {refusal}\n")
    finding, _ = trial.play(played)
    if finding is not None:
        raise SystemExit(finding.words)
    sys.stdout.write("Holds: what this script was written for does not happen.\n")


def fetched(cache: Cache, key: Key, counts: Counts) -> HostPayload:
    """What storage would give for the last pages of a key: so many pages of each component."""
    names = page_hashes(namespace_seed(key.namespace), key.pages)

    def some(component: Component) -> tuple[bytes, ...]:
        pages = names[len(names) - counts[component] :]
        return tuple(stamp(component, page, cache.config.slot_bytes) for page in pages)

    return HostPayload(some(FULL), some(SWA), some(MAMBA))
