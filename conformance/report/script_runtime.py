"""What the scripts of failures import: a judged cache, stamps, and fetched pages.

A script makes the calls that led to the failure, one in each line, on a judged cache. The line that
breaks a law raises, so that a debugger stops there. If no line raises, or the cache now refuses a
call, the case itself is played: its client goes on from the answers that it gets.

A script that ends with exit code 0 says that its own case holds, not that the cache does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kvcanon.conformance.cases import stamps
from kvcanon.conformance.cases.case import case_from_json
from kvcanon.conformance.check.trial import Trial
from kvcanon.conformance.judge import (
    JudgeConfig,
    RequestBlackboxGuard,
    make_judged,
    make_judged_requests,
)
from kvcanon.conformance.protocol.adapter import CacheKind, CopyControl
from kvcanon.conformance.protocol.cache_names import load_adapter
from kvcanon.conformance.workers.hash_seeds import environment, own_seed
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
    hash_seed: int | None = None,
) -> Iterator[tuple[Cache | RequestBlackboxGuard, CopyControl | None]]:
    """Make the named cache with the configuration of a case, and judge the calls inside.

    Yields the cache, and the control of its copies. All laws are checked unless `laws` is given.
    With `hash_seed` the script begins anew in a process with this seed of Python's hashes.
    Raises: ViolationError, at the call; SystemExit at the end, if only the case as a whole shows
    the fault; UsageError: there is no such cache or law.
    """
    if hash_seed is not None and own_seed() != hash_seed:
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment(hash_seed))  # noqa: S606  # This program itself.
    played = case_from_json(case)
    trial = Trial(
        load_adapter(name),
        JudgeConfig(black_box, laws).of_case(played),
        None if against is None else load_adapter(against),
    )
    cache, copies = _made(trial, played.config)
    try:
        yield cache, copies
    except CacheError as refusal:
        sys.stdout.write(f"The cache now refuses a call that it served: {refusal}\n")
    except SystemExit as ended:
        # The script would end as if the fault did not show.
        raise RuntimeError(f"the cache called sys.exit({ended.code!r})") from ended
    finding, _ = trial.play(played)
    if finding is not None:
        raise SystemExit(finding.words)
    sys.stdout.write("Holds: the fault of this script does not show.\n")


def _made(
    trial: Trial, config: CacheConfig
) -> tuple[Cache | RequestBlackboxGuard, CopyControl | None]:
    if trial.adapter.kind is CacheKind.REQUEST:
        return make_judged_requests(trial.adapter, config, trial.judges)[1], None
    subject, judge = make_judged(trial.adapter, config, trial.judges)
    return judge, subject.copies


def write_stamps(cache: Cache, key: Key, slots: Slots, start_pages: int = 0) -> None:
    """Write the data of the last pages of a key into slots, from page `start_pages` on."""
    count = len(key) - start_pages
    stamps.write_stamps(cache, key, Slots(*(some[-count:] for _, some in slots)))


def fetched(cache: Cache, key: Key, counts: Counts) -> HostPayload:
    """The data that storage holds for the last pages of a key, `counts` pages of each component."""
    hashes = page_hashes(namespace_seed(key.namespace), key.pages)

    def some(component: Component) -> tuple[bytes, ...]:
        pages = hashes[len(hashes) - counts[component] :]
        return tuple(stamps.stamp(component, page, cache.config.slot_bytes) for page in pages)

    return HostPayload(some(FULL), some(SWA), some(MAMBA))
