"""The guard of any cache: chooses how to judge a cache by what it shows.

A cache with `snapshot` is judged by its states, at every call or at a sample of them. A cache
without it is judged by its answers, events and bytes, from its first call on: each check compares
with all earlier answers, so no call may be left out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeAlias, cast, overload

from attrs import evolve

import kvcanon.spec.laws  # noqa: F401  # Importing the laws registers them.
from kvcanon.conformance.errors import OnShould, UsageError, ViolationError
from kvcanon.conformance.judge.by_states.guard import GuardedCache, guard_states
from kvcanon.conformance.judge.from_outside.request.guard import RequestBlackboxGuard
from kvcanon.conformance.judge.from_outside.tree.guard import BlackboxGuard
from kvcanon.conformance.judge.judges import find_law
from kvcanon.conformance.protocol.adapter import (
    OF_REQUESTS,
    Adapter,
    CacheKind,
    Capability,
    RequestSubject,
    Subject,
    WatchedCopies,
    subject_of,
)
from kvcanon.conformance.protocol.request import FullRequestCache, RequestCache
from kvcanon.conformance.protocol.tree import TreeCache
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CANON, Profile
from kvcanon.spec.law import LAWS, Law, Need, Violation
from kvcanon.spec.types import CPU, GPU
from kvcanon.spec.views import Step

OnViolation: TypeAlias = Callable[[Violation, Step | None], None]
"""Called with each violation, and the step that it is in; None where no snapshots show steps."""

Laws: TypeAlias = Collection[Law | str]
"""Laws, or their ids."""


@overload
def guard(
    cache: Cache,
    rate: float = 1.0,
    seed: int = 0,
    laws: Laws | None = None,
    on_violation: OnViolation | None = None,
    *,
    copies: WatchedCopies | None = None,
    new: bool = False,
    on_should: OnShould | None = None,
    hides: Collection[Need] = (),
    adapter: Adapter | None = None,
) -> GuardedCache: ...


@overload
def guard(
    cache: TreeCache,
    rate: float = 1.0,
    seed: int = 0,
    laws: Laws | None = None,
    on_violation: OnViolation | None = None,
    *,
    copies: WatchedCopies | None = None,
    new: bool = False,
    on_should: OnShould | None = None,
    hides: Collection[Need] = (),
    adapter: Adapter | None = None,
) -> GuardedCache | BlackboxGuard: ...


@overload
def guard(
    cache: RequestCache,
    rate: float = 1.0,
    seed: int = 0,
    laws: Laws | None = None,
    on_violation: OnViolation | None = None,
    *,
    copies: WatchedCopies | None = None,
    new: bool = False,
    on_should: OnShould | None = None,
    hides: Collection[Need] = (),
    adapter: Adapter | None = None,
) -> RequestBlackboxGuard: ...


def guard(
    cache: TreeCache | RequestCache,
    rate: float = 1.0,
    seed: int = 0,
    laws: Laws | None = None,
    on_violation: OnViolation | None = None,
    *,
    copies: WatchedCopies | None = None,
    new: bool = False,
    on_should: OnShould | None = None,
    hides: Collection[Need] = (),
    adapter: Adapter | None = None,
) -> GuardedCache | BlackboxGuard | RequestBlackboxGuard:
    """Wrap a cache so that its calls are judged; make every call through the wrapper.

    Args:
        cache: By prefixes or by requests. It may lack what is optional: a law that needs it is not
            checked. Without `snapshot` it must be unused.
        rate: The share of calls that is judged; 1 for a cache without `snapshot`.
        seed: Decides which calls these are.
        laws: The laws to check, or their ids; all that can be checked if None.
        on_violation: Called with each violation; without it a violation is raised.
        copies: Says how copies end, and enables the laws that need it.
        new: Whether no events were taken from the cache yet.
        on_should: Called with violations of SHOULD laws alone, after which the cache goes on.
        hides: What the snapshots do not show truthfully; no law that needs it is checked.
        adapter: What the cache declares: its kind, its profile, what it hides, one pool or several.

    Raises: UsageError: an unknown law, a rate that is not possible, or a cache in use.
    """
    chosen = chosen_laws(laws)
    subject = subject_of(cache, copies)
    hidden = {*hides, *(adapter.hides if adapter is not None else ())}
    subject = evolve(subject, shows=subject.shows - hidden)
    profile = CANON if adapter is None else adapter.profile
    if not _is_by_requests(cache, adapter):
        return guard_subject(
            subject,
            rate,
            seed,
            chosen,
            profile=profile,
            on_violation=on_violation,
            new=new,
            on_should=on_should,
        )
    require_all(rate)
    one_pool = adapter is not None and adapter.offer.one_pool
    can, shows = subject.can & OF_REQUESTS, subject.shows
    requests = RequestSubject(cast("FullRequestCache", cache), can, shows, one_pool)
    pass_on = _passing_on(on_violation)
    return RequestBlackboxGuard(
        requests, profile, chosen, on_should, on_violation=pass_on, black_box=False
    )


def guard_subject(
    subject: Subject,
    rate: float,
    seed: int,
    laws: Collection[Law],
    *,
    profile: Profile,
    on_violation: OnViolation | None = None,
    new: bool = False,
    on_should: OnShould | None = None,
) -> GuardedCache | BlackboxGuard:
    """As `guard`, for a cache by prefixes whose methods and snapshots are known."""
    if Need.SNAPSHOT in subject.shows:
        return guard_states(
            subject.cache,
            rate,
            seed,
            [law for law in laws if law.needs <= subject.shows],
            on_violation,
            copies=subject.copies,
            new=new,
            on_should=on_should,
            store=subject.store,
        )
    require_all(rate)
    _require_unused(subject)
    return BlackboxGuard(subject, profile, laws, on_should, on_violation=_passing_on(on_violation))


def require_all(rate: float) -> None:
    """Refuse a sample of calls: answers are compared with those before. Raises: UsageError."""
    if rate != 1:
        raise UsageError(
            f"rate is {rate:g}; a cache without `snapshot` is judged at each call, so make it 1"
        )


def chosen_laws(laws: Laws | None) -> list[Law]:
    """The laws to check. Raises: UsageError."""
    if laws is None:
        return list(LAWS.values())
    return [each if isinstance(each, Law) else find_law(each) for each in laws]


def _is_by_requests(cache: object, adapter: Adapter | None) -> bool:
    if adapter is not None:
        return adapter.kind is CacheKind.REQUEST
    return hasattr(cache, "admit") and not hasattr(cache, "match")


def _passing_on(on_violation: OnViolation | None) -> OnShould | None:
    """Return what passes each of some violations on."""
    if on_violation is None:
        return None

    def pass_on(error: ViolationError) -> None:
        for violation in error.violations:
            on_violation(violation, None)

    return pass_on


def _require_unused(subject: Subject) -> None:
    """Refuse a cache that shows that its slots are in use. Raises: UsageError."""
    if Capability.FREE_SLOTS not in subject.can:
        return
    cache = subject.cache
    for component in cache.config.components:
        for medium in (GPU, CPU):
            used = cache.config.capacity(component, medium) - len(
                cache.free_slots(component, medium)
            )
            if used:
                raise UsageError(
                    f"the cache is in use: {used} {component} slots on {medium} are not free; "
                    "without `snapshot` it is judged from its first call on, so guard a new one"
                )
