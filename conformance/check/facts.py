"""What the main process of a check knows of a cache; a worker loads it and makes one to find out.

A worker that dies at the import or in the factory leaves a usage error: there is nothing to judge.

Before anything is played, each worker loads the caches and makes one of each: an engine may take
long to be imported, and longer to make its first cache.
"""

from __future__ import annotations

from contextlib import suppress

from attrs import evolve, fields, frozen

from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.check.bare_factory import Ignored, ignored_by, without
from kvcanon.conformance.check.blocks import cases_of
from kvcanon.conformance.check.plan import CachePlan
from kvcanon.conformance.check.time_limit import LOADING, NotMade, made_in_time
from kvcanon.conformance.check.trial import adapter_as
from kvcanon.conformance.errors import CacheSilent, UsageError
from kvcanon.conformance.protocol.adapter import (
    Adapter,
    CacheKind,
    Offer,
    RequestSubject,
    Subject,
    Unoffered,
    lacks_of,
    make_request_subject,
    make_subject,
    why_no_engine,
)
from kvcanon.conformance.workers.ending import SILENT, ProcessDied
from kvcanon.conformance.workers.notes import NOTE
from kvcanon.conformance.workers.workers import Workers
from kvcanon.spec.config import CacheConfig, Profile

CONFIGS_TRIED = 200
"""How many configurations are tried until a cache is made with one."""
FAILURES_TRIED = 8
"""How many factory calls may fail before the cache counts as one that cannot be made."""
DEATHS_TRIED = 3
"""How many of them may end their process."""


@frozen
class CacheFacts:
    """A cache without its code: what its adapter declares, and what one cache showed."""

    name: str
    """The name on the command line."""
    kind: CacheKind
    is_bare: bool
    offer: Offer
    profile: Profile
    lacks: tuple[str, ...]
    """Operations that the cache lacks, and needs of laws that it does not show."""
    made_from: int
    """The number of the drawn configuration with which the cache was made."""
    no_engine: str
    """Why its factory got no engine, if only its signature is the reason."""
    ignores: tuple[Ignored, ...] = ()
    """What a bare factory pays no heed to, so that its offer has none of it."""


def facts_of(cache: CachePlan, by: Workers) -> CacheFacts:
    """Load a cache and make one, in a worker. Raises: UsageError."""
    name, first = cache.name, 0
    for tried in range(1, DEATHS_TRIED + 1):
        try:
            return _narrowed(cache, by.executor.submit(look_at, cache, first).result(), by)
        except ProcessDied as died:
            noted, silent = died.ending.noted, died.ending.name == SILENT
            what = f"{'' if silent else 'it '}{died}{_last_line(died.ending.words)}"
            if noted.place == LOADING or not noted.place:
                raise UsageError(f"{name} cannot be imported: {what}") from None
            if silent or tried == DEATHS_TRIED:
                raise UsageError(f"{name} made no cache: {what}") from None
            first = int(noted.place) + 1
    raise UsageError(f"{name} made no cache")


def _narrowed(cache: CachePlan, facts: CacheFacts, by: Workers) -> CacheFacts:
    """The facts with what a bare factory ignores; without it if the worker dies while it looks."""
    if not facts.is_bare:
        return facts
    try:
        ignores = by.executor.submit(look_for_more, cache).result()
    except ProcessDied:
        return facts
    return evolve(facts, ignores=ignores, offer=without(facts.offer, ignores))


def look_for_more(cache: CachePlan) -> tuple[Ignored, ...]:
    """What the caches of a bare factory ignore; in any process."""
    return ignored_by(adapter_as(cache.name))


def look_at(cache: CachePlan, first: int) -> CacheFacts:
    """Load a cache and make one, from the drawn configuration `first` on. Raises: UsageError."""
    name = cache.name
    adapter = adapter_as(name, black_box=cache.plan.judges.black_box)
    errors: list[UsageError] = []
    refused = Unoffered()
    for seed in range(first, CONFIGS_TRIED):
        NOTE.place(str(seed).encode())
        config = draw_case(seed, adapter.offer).config
        try:
            subject = _made(adapter, config)
        except Unoffered as refusal:
            refused = refusal
        except UsageError as error:
            errors.append(error)
            if isinstance(error, NotMade) and error.name == CacheSilent.__name__:
                break
            if len(errors) == FAILURES_TRIED:
                break
        else:
            declared = {each.name: getattr(adapter.offer, each.name) for each in fields(Offer)}
            # A subclass would be imported where these facts are read.
            offer = Offer(**declared)
            return CacheFacts(
                name,
                adapter.kind,
                adapter.is_bare,
                offer,
                adapter.profile,
                lacks_of(subject),
                seed,
                why_no_engine(adapter),
            )
    if not errors:
        raise UsageError(
            f"{adapter.name} offers none of {CONFIGS_TRIED} drawn configurations ({refused}); "
            "list in its Offer what it supports"
        )
    if isinstance(errors[0], NotMade):
        raise UsageError(f"{name} made no cache: {errors[0]}")
    raise errors[0]


def load_everywhere(cache: CachePlan, facts: CacheFacts, by: Workers) -> None:
    """Load a cache in each worker, and make one. What fails here fails again where it is played."""
    for loaded in by.each(load, cache, facts.made_from):
        with suppress(Exception):
            loaded.result()


def load(cache: CachePlan, made_from: int) -> None:
    """Load a cache in this process, and make one with the drawn configuration of a number."""
    adapter = cases_of(cache).base.adapter
    NOTE.place(str(made_from).encode())
    with suppress(UsageError, Unoffered):
        _made(adapter, draw_case(made_from, adapter.offer).config)


def _made(adapter: Adapter, config: CacheConfig) -> Subject | RequestSubject:
    if adapter.kind is CacheKind.REQUEST:
        return made_in_time(lambda: make_request_subject(adapter, config))
    return made_in_time(lambda: make_subject(adapter, config))


def _last_line(words: str) -> str:
    """The last line that a process wrote before the stacks of its threads, in brackets."""
    said = words.partition("Fatal Python error")[0].strip().splitlines()
    return f" ({said[-1][:200]})" if said else ""
