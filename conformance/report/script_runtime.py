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

from kvcanon.conformance.blackbox.request.guard import RequestBlackboxGuard
from kvcanon.conformance.cases.case import case_from_json
from kvcanon.conformance.observe import stamps
from kvcanon.conformance.protocol.adapter import CacheKind, CopyControl
from kvcanon.conformance.protocol.loading import load_adapter
from kvcanon.conformance.search.play import JudgeConfig, laws_of, make_judged, make_judged_requests
from kvcanon.conformance.search.trial import Trial
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import CacheError
from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.operations import HostPayload
from kvcanon.spec.types import FULL, MAMBA, SWA, Component, Counts, Key, Slots


@contextmanager
def judged(
    name: str,
    case: Mapping[str, Any],
    *,
    laws: Sequence[str] | None = None,
    black_box: bool = False,
    against: str | None = None,
) -> Iterator[tuple[Cache | RequestBlackboxGuard, CopyControl | None]]:
    """Make the cache of this name, as a case has it, and judge what is called inside.

    Yields the cache, and the hand on its copies. The laws are all, unless some are given.
    Raises: ViolationError, at the call; SystemExit at the end, where only the case as a whole shows
    what is wrong; UsageError: there is no such cache.
    """
    played = case_from_json(case)
    trial = Trial(
        load_adapter(name),
        JudgeConfig(black_box, laws_of(laws)).of_case(played),
        None if against is None else load_adapter(against),
    )
    cache, copies = _made(trial, played.config)
    try:
        yield cache, copies
    except CacheError as refusal:
        sys.stdout.write(f"The cache now refuses what it granted: {refusal}\n")
    finding, _ = trial.play(played)
    if finding is not None:
        raise SystemExit(finding.words)
    sys.stdout.write("Holds: what this script was written for does not happen.\n")


def _made(
    trial: Trial, config: CacheConfig
) -> tuple[Cache | RequestBlackboxGuard, CopyControl | None]:
    if trial.adapter.kind is CacheKind.REQUEST:
        return make_judged_requests(trial.adapter, config, trial.judges)[1], None
    subject, judge = make_judged(trial.adapter, config, trial.judges)
    return judge, subject.copies


def write_stamps(cache: Cache, key: Key, slots: Slots, start_pages: int = 0) -> None:
    """Write the data of the last pages of a key into slots, of those from some page on."""
    count = len(key) - start_pages
    stamps.write_stamps(cache, key, Slots(*(some[-count:] for _, some in slots)))


def fetched(cache: Cache, key: Key, counts: Counts) -> HostPayload:
    """What storage would give for the last pages of a key: so many pages of each component."""
    names = page_hashes(namespace_seed(key.namespace), key.pages)

    def some(component: Component) -> tuple[bytes, ...]:
        pages = names[len(names) - counts[component] :]
        return tuple(stamps.stamp(component, page, cache.config.slot_bytes) for page in pages)

    return HostPayload(some(FULL), some(SWA), some(MAMBA))
