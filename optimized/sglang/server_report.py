"""What kvcanon says of itself in a server: lines in SGLang's log, and metrics in its `/metrics`.

The counters are read by a thread of the scheduler's process, so that no request pays for them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from threading import Event, Thread
from time import monotonic
from typing import Protocol, TypeAlias
from weakref import ReferenceType, ref

from kvcanon.optimized.sglang.native_tree import TreeOfNodes
from kvcanon.optimized.stats import Stats, read_stats
from kvcanon.sglang_release import installed_version
from kvcanon.spec.types import CPU, GPU

PERIOD_S = 5.0
"""How often the metrics are brought up to date."""
LINE_S = 60.0
"""How often the log gets a line, where there was a match."""
logger = logging.getLogger("kvcanon")
Update: TypeAlias = Callable[[Stats], None]
"""Brings metrics up to date."""


class HasTree(Protocol):
    """A tree core of this package."""

    @property
    def native(self) -> TreeOfNodes:
        """The native cache."""


def read(native: TreeOfNodes) -> Stats:
    """The statistics of the cache behind a tree core."""
    return read_stats(native.view, native.settings, None, {})


def line(before: Stats, now: Stats) -> str:
    """What happened between two readings, for the log; empty where nothing was matched."""
    matches = now.matches - before.matches
    if matches <= 0:
        return ""
    asked = now.asked_tokens - before.asked_tokens
    device, host = (now.hit_tokens[at] - before.hit_tokens[at] for at in (GPU, CPU))
    evicted = sum(count for _, count in now.evicted_asked - before.evicted_asked)
    refused = _refused(now) - _refused(before)
    return (
        f"kvcanon: {matches} matches of {asked} tokens, {device} found on the device and {host} "
        f"on the host; {evicted} pages and states evicted, {refused} calls refused; "
        f"{now.nodes} nodes, {now.receipts} locks"
    )


def _refused(stats: Stats) -> int:
    return sum(each.refused for each in stats.operations.values())


def begin(core: HasTree, labels: Mapping[str, str] | None) -> Event:
    """Report of a core until it is gone, or the event is set; without labels no metrics."""
    settings = core.native.settings
    logger.info(
        "kvcanon %s is the tree core of this cache: pages of %d tokens, components %s, %s",
        *(installed_version(), settings.page_size, ", ".join(settings.components)),
        f"host tier, {settings.write_policy.value}" if settings.host_tier else "no host tier",
    )
    stop = Event()
    Thread(
        target=_report,
        args=(ref(core), _updating(labels), stop),
        name="kvcanon-report",
        daemon=True,
    ).start()
    return stop


def _report(
    core: ReferenceType[HasTree], update: Callable[[Stats], None] | None, stop: Event
) -> None:
    shown: Stats | None = None
    next_line = monotonic()
    while (stats := _reading(core)) is not None:
        if update is not None:
            update(stats)
        if monotonic() >= next_line:
            next_line += LINE_S
            if shown is not None and (text := line(shown, stats)):
                logger.info(text)
            shown = stats
        if stop.wait(PERIOD_S):
            return


def _reading(core: ReferenceType[HasTree]) -> Stats | None:
    """The statistics of a core; None where it is gone, which this must not keep from happening."""
    there = core()
    return None if there is None else read(there.native)


def _updating(labels: Mapping[str, str] | None) -> Update | None:
    if labels is None:
        return None
    # Only a server with metrics needs the package that they are made with.
    from kvcanon.optimized.sglang.server_metrics import ServerMetrics  # noqa: PLC0415

    return ServerMetrics(labels).update
