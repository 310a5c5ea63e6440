"""How a case is judged: by which laws, by states or from outside; and the judge of a new cache."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING

from attrs import evolve, field, frozen

import kvcanon.spec.laws  # noqa: F401  # Importing the laws registers them.
from kvcanon.conformance.cases.case import Case
from kvcanon.conformance.errors import OnShould, UsageError, describe_exception
from kvcanon.conformance.judge.by_states.guard import GuardedCache, guard_states
from kvcanon.conformance.judge.from_outside.tree.guard import BlackboxGuard
from kvcanon.conformance.protocol.adapter import (
    Adapter,
    RequestSubject,
    Subject,
    Unoffered,
    make_request_subject,
    make_subject,
)
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.law import LAWS, Law, Need
from kvcanon.spec.types import Medium


def find_law(law_id: str) -> Law:
    """The law with this id. Raises: UsageError."""
    wanted = law_id.upper()
    if wanted in LAWS:
        return LAWS[wanted]
    near = get_close_matches(wanted, LAWS, n=4)
    hint = (
        f"near it are {', '.join(near)}"
        if near
        else f"`kvcanon laws` lists them, `kvcanon laws --about {law_id!r}` searches them"
    )
    raise UsageError(f"no law {law_id}; {hint}")


if TYPE_CHECKING:
    from kvcanon.conformance.judge.from_outside.request.guard import RequestBlackboxGuard


def _law_ids(law_ids: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if law_ids is None else tuple(find_law(law_id).law_id for law_id in law_ids)


def _known(law_ids: Collection[str]) -> frozenset[str]:
    unknown = sorted(set(law_ids) - LAWS.keys())
    if unknown:
        raise UsageError(f"no law {unknown[0]}, which is given as known to be broken")
    return frozenset(law_ids)


@frozen
class JudgeConfig:
    """How a cache is judged. Raises: UsageError: there is no such law."""

    black_box: bool = False
    """Whether to judge by answers and events only, even if the cache shows its state."""
    laws: tuple[str, ...] | None = field(default=None, converter=_law_ids)
    """The ids of the laws to check; None for all, an empty tuple for none."""
    thorough: bool = False
    """Whether to check every law on everything, instead of on what a step touched."""
    unobserved: bool = False
    """Whether the judge looks at nothing between calls, as some cases have it."""
    ranks: int = 1
    """How many ranks get the calls, whatever a case says; if several, laws of ranks are checked,
    too."""
    rank_apart: bool = False
    """Whether the last rank has a process of its own, with another seed of Python's hashes."""
    store: Medium | None = None
    """The medium of the store below the host tier, as a case has it; None without a store."""
    known: frozenset[str] = field(default=frozenset(), converter=_known)
    """The ids of laws that are known to be broken; like SHOULD laws, they end no case, so that
    they hide no other fault."""
    ends_at_should: bool = False
    """Whether a broken SHOULD law ends a case, as every other law does."""

    def of_case(self, case: Case) -> JudgeConfig:
        """The same, with `unobserved`, `ranks`, `rank_apart` and `store` as in a case."""
        return evolve(
            self,
            unobserved=case.unobserved,
            ranks=max(self.ranks, case.ranks),
            rank_apart=case.rank_apart,
            store=case.store,
        )

    def laws_for(self, shows: Collection[Need]) -> list[Law]:
        """The laws that can be checked on a cache that shows this much."""
        shown = set(shows) if self.ranks > 1 else set(shows) - {Need.RANKS}
        return [each for each in self.every_law if each.needs <= shown]

    @property
    def every_law(self) -> tuple[Law, ...]:
        """The laws to check, whatever a cache shows."""
        return tuple(LAWS[law_id] for law_id in (LAWS if self.laws is None else self.laws))


ALL_JUDGES = JudgeConfig()


def make_judged(
    adapter: Adapter,
    config: CacheConfig,
    judges: JudgeConfig = ALL_JUDGES,
    on_should: OnShould | None = None,
) -> tuple[Subject, GuardedCache | BlackboxGuard]:
    """Make an empty cache, and the judge through which it is used. Raises: as `make_subject`.

    Where several ranks get the calls, the cache stands for all of them; a cache that cannot be
    judged like this does not offer it.

    If only SHOULD laws are broken, the judge calls `on_should`; without it, the judge raises.
    """
    if judges.ranks > 1 and judges.black_box:
        raise Unoffered("ranks are compared by their states")
    if judges.store is not None and judges.black_box:
        raise Unoffered("a cache with a store is judged by its states")
    subject = _made(adapter, config, judges)
    if Need.SNAPSHOT in subject.shows and not judges.black_box:
        try:
            return subject, guard_states(
                subject.cache,
                laws=judges.laws_for(subject.shows),
                copies=subject.copies,
                new=True,
                on_should=on_should,
                thorough=judges.thorough,
                ranks=subject.ranks,
                store=subject.store,
            )
        except Exception as error:
            raise UsageError(
                f"{adapter.name}: the second snapshot of a new cache raised "
                f"{describe_exception(error)}"
            ) from error
    return subject, BlackboxGuard(
        subject, adapter.profile, judges.every_law, on_should, unobserved=judges.unobserved
    )


def _made(adapter: Adapter, config: CacheConfig, judges: JudgeConfig) -> Subject:
    if judges.ranks == 1:
        return make_subject(adapter, config, store=judges.store)
    # Most cases are of one cache, and do not wait for this import.
    from kvcanon.conformance.judge.ranks import make_ranks  # noqa: PLC0415

    return make_ranks(adapter, config, judges.ranks, apart=judges.rank_apart, store=judges.store)


def make_judged_requests(
    adapter: Adapter,
    config: CacheConfig,
    judges: JudgeConfig = ALL_JUDGES,
    on_should: OnShould | None = None,
) -> tuple[RequestSubject, RequestBlackboxGuard]:
    """As `make_judged`, for a request cache. Raises: as `make_request_subject`."""
    if judges.ranks > 1:
        raise Unoffered("request caches are not compared as ranks")
    # Most checks are of trees, and do not wait for this import.
    from kvcanon.conformance.judge.from_outside.request import guard  # noqa: PLC0415

    subject = make_request_subject(adapter, config)
    laws, black_box = judges.every_law, judges.black_box
    return subject, guard.RequestBlackboxGuard(
        subject, adapter.profile, laws, on_should, black_box=black_box
    )
