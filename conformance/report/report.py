"""The report of a check as a value: all that each way of writing it down has to say.

What readers get wrong: a law that was not exercised has a reason. The cache does not offer or show
what the law looks at, or the law was not asked for, or its situation never came up; these are
three, and only the last one goes away with more effort.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum

from attrs import fields, frozen

from kvcanon.conformance.blackbox.coverage import why_not_exercised
from kvcanon.conformance.protocol.adapter import Adapter, Offer
from kvcanon.conformance.report.call_code import CodeLine, lines_of, literal
from kvcanon.conformance.report.known_differences import KnownDifference
from kvcanon.conformance.report.replayed import judges_of, retell
from kvcanon.conformance.report.script import script_of
from kvcanon.conformance.search.campaign import adapter_as
from kvcanon.conformance.search.result import CacheResult, CheckResult, Failure, Standing
from kvcanon.spec.config import CANON, Profile
from kvcanon.spec.law import LAWS, Law


class CheckVerdict(StrEnum):
    """What came of a check; each has an exit code of its own."""

    HOLDS = "holds"
    BROKEN = "broken"
    NOT_EXERCISED = "not exercised"
    """Nothing was found, and too little came up: an operation that every cache has, or a law."""
    NOT_JUDGED = "not judged"
    """Nothing was found, and no law was exercised at all."""


NOT_ASKED = "not asked for"

FEW = 3
"""How many of the laws that were exercised least are named."""

DEPARTURES = {
    "load_back_announced": "store(GPU) of a load-back is announced when the copy is enqueued, "
    "before the bytes are there",
    "load_back_usable": "what is loaded back counts as being on the device when the copy is "
    "enqueued, so that no page waits for it",
    "window_lock_exact": "a window lock pins whole nodes, and so more than its window",
    "split_keeps_recency": "a cut makes the part that was not matched the most recent",
    "host_order_by_use": "window data and states leave the host in the order in which they left "
    "the device",
    "whole_nodes_on_host": "under write_back, window data and states are on the host also without "
    "the full data of their node",
    "locks_hold_host_copies": "host copies of what is locked on the device may leave",
    "mamba_refresh": "a match makes all states on its path recent, not only the matched one",
    "hits_once_a_request": "every insert counts hits on its whole path, also a later one of a "
    "request",
    "idle_hits_counted": "no hits are counted where neither copies nor evictions go by them",
    "heals_in_place": "window data that was gone comes back with new full slots, in place of those "
    "that were there",
    "tombstone_leaves": "what would be a leaf without window data is not kept",
    "unreachable_windows_kept": "an insert frees the window slots that it is handed for pages out "
    "of reach of its end",
    "hits_counted_at_match": "hits are counted by matches, and not by inserts",
    "loads_keep_host_copies": "under write_back the host copy of what is loaded is given up when "
    "the load is done",
    "removes_end_first": "the pages of one node are removed in any order, also the first one first",
    "uncovered_tombstones_stay": "a node without window data leaves with the last of what is below "
    "it",
    "cushion_refreshed": "a use leaves the window data of the page before its window as it was",
    "limits": "calls are refused that the table of grounds has no ground against",
}
"""What it means that a field of a profile is not as in the canon."""


@frozen
class Departure:
    """A choice in which a cache is not as the canon."""

    field: str
    value: str
    canon: str
    meaning: str


@frozen
class ReplayedFailure:
    """A failure, and the calls that lead to it."""

    failure: Failure
    lines: tuple[CodeLine, ...]
    again: bool
    """Whether it showed again when the case was played for the report."""
    script: str

    @property
    def last_number(self) -> int:
        """The operation at which it shows."""
        return self.failure.finding.operation


@frozen
class Judged:
    """What is known of a law and a cache."""

    law: Law
    standing: Standing
    stages: Mapping[str, int]
    """How often it was exercised in each stage."""
    remark: str
    """Why it was not exercised, or what is known of it; empty otherwise."""

    @property
    def times(self) -> int:
        """How often it was exercised."""
        return sum(self.stages.values())


@frozen
class CacheReport:
    """All that is to be said of one cache."""

    name: str
    """As on the command line."""
    result: CacheResult
    laws: tuple[Judged, ...]
    """Every law of the book."""
    failures: tuple[ReplayedFailure, ...]
    unkept: tuple[ReplayedFailure, ...]
    """Of laws that it should keep, and need not."""

    def count(self, standing: Standing) -> int:
        """How many laws stand so."""
        return sum(each.standing is standing for each in self.laws)

    @property
    def asked(self) -> int:
        """How many laws were asked for."""
        return sum(each.remark != NOT_ASKED for each in self.laws)

    @property
    def exercised(self) -> int:
        """How many laws were exercised, whatever came of it."""
        return len(self.laws) - self.count(Standing.NOT_EXERCISED)

    @property
    def verdict(self) -> CheckVerdict:
        """What came of it for this cache."""
        if self.failures or self.count(Standing.BROKEN):
            return CheckVerdict.BROKEN
        if not self.exercised:
            return CheckVerdict.NOT_JUDGED
        return CheckVerdict.NOT_EXERCISED if self.result.missing else CheckVerdict.HOLDS

    @property
    def departures(self) -> tuple[Departure, ...]:
        """Where the cache departs from the canon."""
        return tuple(_departures(self.result.profile))

    @property
    def offered(self) -> tuple[str, ...]:
        """What the cache can be made with, where that is not everything."""
        return tuple(_offered(adapter_as(self.name).offer))

    @property
    def least_exercised(self) -> tuple[Judged, ...]:
        """The few laws that held, and were exercised least."""
        held = [each for each in self.laws if each.standing is Standing.HELD]
        return tuple(sorted(held, key=lambda each: each.times)[:FEW])

    @property
    def not_exercised(self) -> tuple[str, ...]:
        """The laws that were not exercised, by the reason, in words."""
        reasons: dict[str, list[str]] = {}
        for each in self.laws:
            if each.standing is Standing.NOT_EXERCISED:
                reasons.setdefault(each.remark, []).append(each.law.law_id)
        return tuple(
            # Who asked for some laws knows that all the others were left out.
            f"{len(ids)} laws: {reason}" if reason == NOT_ASKED else f"{', '.join(ids)}: {reason}"
            for reason, ids in reasons.items()
        )


@frozen
class CheckReport:
    """All that is to be said of a check."""

    result: CheckResult
    caches: tuple[CacheReport, ...]
    known: tuple[KnownDifference, ...]

    @property
    def verdict(self) -> CheckVerdict:
        """What came of it: one cache of which too little is known makes the whole check void."""
        verdicts = {cache.verdict for cache in self.caches}
        for verdict in (CheckVerdict.BROKEN, CheckVerdict.NOT_JUDGED, CheckVerdict.NOT_EXERCISED):
            if verdict in verdicts:
                return verdict
        return CheckVerdict.HOLDS if verdicts else CheckVerdict.NOT_JUDGED

    @property
    def seconds(self) -> float:
        """The time that all stages took."""
        return sum(stage.seconds for stage in self.result.stages)


def report_of(
    result: CheckResult, only: Collection[str] = (), known: Sequence[KnownDifference] = ()
) -> CheckReport:
    """The report of a check, of certain laws only and with known differences, if there are any.

    Every failure is played once more, so that its calls can be told.
    """
    caches = tuple(_of_cache(cache, only, known) for cache in result.caches)
    return CheckReport(result, caches, tuple(known))


def _of_cache(
    cache: CacheResult, only: Collection[str], known: Sequence[KnownDifference]
) -> CacheReport:
    laws = tuple(
        Judged(
            law,
            cache.standings[law.law_id],
            {stage: tally.laws[law.law_id] for stage, tally in cache.tallies.items()},
            _remark(law, cache, only, known),
        )
        for law in LAWS.values()
    )
    asked = [each.law.law_id for each in laws if each.standing in (Standing.HELD, Standing.BROKEN)]
    adapter = adapter_as(cache.name)
    failures = tuple(_retold(failure, adapter, asked) for failure in cache.failures)
    unkept = tuple(_retold(failure, adapter, asked) for failure in cache.unkept)
    return CacheReport(cache.name, cache, laws, failures, unkept)


def _retold(failure: Failure, adapter: Adapter, asked: Collection[str]) -> ReplayedFailure:
    judges = judges_of(failure, asked)
    told = retell(failure, adapter, judges)
    lines = lines_of(told.calls)
    return ReplayedFailure(
        failure, lines, told.again, script_of(adapter.name, failure, judges, lines)
    )


def _remark(
    law: Law, cache: CacheResult, only: Collection[str], known: Sequence[KnownDifference]
) -> str:
    standing = cache.standings[law.law_id]
    excuse = next((f"{each.reason} ({each.link})" for each in known if each.law == law.law_id), "")
    if standing is not Standing.NOT_EXERCISED:
        return excuse
    if excuse:
        return "it is known to be broken, and no vector came to it"
    if LAWS.keys() & only and law.law_id not in only:
        return NOT_ASKED
    return why_not_exercised(law, cache.lacks)


def _offered(offer: Offer) -> Iterator[str]:
    for each in fields(Offer):
        value, usual = getattr(offer, each.name), each.default
        if value != usual:
            options = value if isinstance(value, tuple) else (value,)
            told = ", ".join(dict.fromkeys("none" if one is None else str(one) for one in options))
            yield f"{each.name.replace('_', ' ')}: {told}"


def _departures(profile: Profile) -> Iterator[Departure]:
    for each in fields(Profile):
        value, canon = getattr(profile, each.name), getattr(CANON, each.name)
        if value != canon:
            yield Departure(each.name, literal(value), literal(canon), DEPARTURES[each.name])
