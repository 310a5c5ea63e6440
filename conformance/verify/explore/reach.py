"""What is out of a scope's reach: the laws that cannot be exercised in it.

A law of load-backs has nothing to say where there is no host. What a scope lacks is seen in its
configuration, and from that follows what is out of its reach; every other law has to be exercised,
or the scope seems to have asked what it never did.

What readers get wrong: out of reach is no excuse that a scope can give itself. Which laws need what
is said here once, for all scopes, and what comes up all the same shows it to be wrong.
"""

from __future__ import annotations

from kvcanon.conformance.verify.explore.scope import Scope
from kvcanon.spec.types import WritePolicy


def has_to_come_up(scope: Scope, law_id: str) -> bool:
    """Whether a law has to be exercised in a scope that is gone through to its end."""
    if scope.made_for:
        return law_id in scope.made_for
    return law_id not in out_of_reach(scope)


def out_of_reach(scope: Scope) -> frozenset[str]:
    """The ids of the laws that cannot be exercised in a scope."""
    return frozenset(law_id for lacks, ids in _lacking(scope) if lacks for law_id in ids.split())


def _lacking(scope: Scope) -> tuple[tuple[bool, str], ...]:
    """What a scope may lack, whether it does, and which laws say nothing without it."""
    config = scope.config
    window, host = config.window_tokens is not None, config.host_tier
    policy = config.write_policy
    return (
        (not window and not config.mamba, "RES-2 LOCK-2 EVICT-3"),
        (not window, "LOCK-6 ALLOC-4 ALLOC-9 ALLOC-10"),
        (not _leaves_windows_behind(scope), "REC-1"),
        (not config.mamba, "REC-5"),
        (not host, "MATCH-7 EVICT-5 DATA-2 LOAD-1 LOAD-2 LOAD-3 LOAD-4 LOAD-5 LOAD-6 LOAD-7"),
        (not host, "ASYNC-1 ASYNC-2 ASYNC-3 ASYNC-4 ASYNC-5 ASYNC-6 ASYNC-7 ASYNC-8 ASYNC-9"),
        (not host, "ASYNC-10 RES-11 EVENT-14"),
        (not config.backed_parents, "RES-4"),
        (config.backup_hits is None, "RES-5 RES-10"),
        (policy is not WritePolicy.WRITE_BACK, "EVICT-7 EVICT-8"),
        (not host or not scope.fetches, "RES-9"),
        (scope.receipts < 1, "LOCK-8 LOCK-9 LOCK-10 REFUSE-2"),
        (scope.receipts < 2, "LOCK-11"),
        (scope.receipts < 1 and not host, "LOCK-1 LOCK-3 LOCK-4 LOCK-5 ALLOC-2"),
        (scope.requests < 1, "ALLOC-10"),
    )


def _leaves_windows_behind(scope: Scope) -> bool:
    """Whether a prompt is long enough for its first page to be out of the reach of its end."""
    config = scope.config
    if config.window_tokens is None:
        return False
    reach_tokens = config.window_tokens + config.page_size
    return (scope.pages - 1) * config.page_size >= reach_tokens
