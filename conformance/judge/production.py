"""The guard in production: stands for an engine's cache, and judges a sample of its calls.

The other guards are for tests: their violations and their errors reach the caller, and they have
the methods of the protocol alone. This one gives each caller what the cache answered, and is taken
for the cache: by its type, its attributes and its operators.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping
from inspect import isasyncgenfunction, iscoroutinefunction, unwrap
from typing import Any

from attrs import define

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.judge.by_states.guard import GuardedCache, guard_states
from kvcanon.conformance.judge.guards import Laws, OnViolation, chosen_laws
from kvcanon.conformance.judge.sampling import CallSampler, GuardCounts
from kvcanon.conformance.protocol.adapter import Adapter, WatchedCopies, subject_of
from kvcanon.conformance.protocol.tree import TreeCache
from kvcanon.spec.cache import Cache
from kvcanon.spec.law import Need
from kvcanon.spec.operations import METHODS, Read, Write

OPERATIONS = frozenset(name for kind, name in METHODS.items() if kind not in (Read, Write))
"""The methods that are judged. Bytes are not: most writes between two judged calls are not seen."""
_LOOKS = frozenset({"read", "write", "snapshot", "free_slots", "arrived"})
"""The methods that change no state, and wait for nobody."""
OWN_NAMES = ("counts", "laws_checked", "laws_exercised")
"""What a guard has, and its cache must not have."""
_OPERATORS = (
    *("__len__", "__bool__", "__iter__", "__contains__", "__getitem__", "__setitem__"),
    *("__delitem__", "__call__", "__enter__", "__exit__", "__aenter__", "__aexit__"),
)
"""What an operator or a statement looks up in the type, and a cache may have."""


def production_guard(
    cache: TreeCache,
    rate: float = 0.01,
    *,
    budget: float | None = 0.03,
    seed: int = 0,
    laws: Laws | None = None,
    on_violation: OnViolation | None = None,
    copies: WatchedCopies | None = None,
    hides: Collection[Need] = (),
    adapter: Adapter | None = None,
) -> ProductionGuard:
    """Wrap a cache with snapshots, so that a share of its calls is judged while it serves.

    No violation and no error of the judge reaches a caller. Make every call through the wrapper.

    Args:
        cache: A cache by prefixes with `snapshot`. Its methods must not be coroutines.
        rate: The share of calls that is judged, if the budget allows it.
        budget: The share of time that judging may take. After a judged call none is judged until
            so much time is over that its own is no larger a share. With None there is no bound.
        seed: Decides which calls are judged.
        laws: The laws to check, or their ids; all that can be checked if None.
        on_violation: Called with each violation and its step; logged if None.
        copies: Says how copies end, and enables the laws that need it.
        hides: What the snapshots do not show truthfully; no law that needs it is checked.
        adapter: What the cache declares: what it hides.

    Raises: UsageError: a share that is none, an unknown law, or a cache that cannot be judged.
    """
    for name, share in (("rate", rate), ("budget", budget)):
        if share is not None and not 0 < share <= 1:
            raise UsageError(f"{name} is {share:g}; it is a share of more than 0, and at most 1")
    _require_guardable(cache)
    subject = subject_of(cache, copies)
    if Need.SNAPSHOT not in subject.shows:
        raise UsageError(
            "the cache has no `snapshot`, without which each call must be judged; `guard` does "
            "that, and is for tests"
        )
    hidden = {*hides, *(adapter.hides if adapter is not None else ())}
    kept = [law for law in chosen_laws(laws) if law.needs <= subject.shows - hidden]

    def make(heard: Cache, note: OnViolation) -> GuardedCache:
        return guard_states(heard, 1.0, 0, kept, note, copies=copies)

    sampler = CallSampler(
        subject.cache,
        make,
        rate,
        budget,
        seed=seed,
        on_violation=on_violation,
        laws_checked=tuple(law.law_id for law in kept),
    )
    return standing_for(sampler)


def _require_guardable(cache: TreeCache) -> None:
    """Refuse a cache whose calls cannot be judged, or passed on. Raises: UsageError."""
    for name in sorted(OPERATIONS):
        if _is_coroutine(getattr(cache, name, None)):
            raise UsageError(
                f"{name} is a coroutine; guard the cache that it calls, whose calls return"
            )
    for name in OWN_NAMES:
        if hasattr(cache, name):
            raise UsageError(
                f"the cache has a `{name}` of its own, and so has its guard: name it otherwise in "
                "the cache"
            )


def _is_coroutine(method: object) -> bool:
    """Whether a method returns before it has ended, as far as it says so."""
    if not callable(method):
        return False
    plain = unwrap(method)
    kinds = plain, type(plain).__call__
    return any(iscoroutinefunction(each) or isasyncgenfunction(each) for each in kinds)


def standing_for(sampler: CallSampler) -> ProductionGuard:
    """The guard whose calls a sampler makes; its type has the operators of the cache."""
    kind = type(sampler.cache)
    operators = {
        name: _operator(name) for name in _OPERATORS if getattr(kind, name, None) is not None
    }
    made = type(ProductionGuard.__name__, (ProductionGuard,), {"__slots__": (), **operators})
    return made(sampler)  # type: ignore[no-any-return]  # `type` says nothing of what it makes.


def _operator(name: str) -> Callable[..., object]:
    """A special method that calls the cache's."""

    def call(guard: ProductionGuard, *args: object, **kwargs: object) -> object:
        sampler = guard._kvcanon_sampler  # noqa: SLF001  # The method of its class.
        method = getattr(type(sampler.cache), name)
        answer = sampler.pass_through(method, (sampler.cache, *args), kwargs)
        return guard if answer is sampler.cache else answer

    return call


class ProductionGuard:
    """A cache of which a sample of calls is judged. It has whatever the cache has.

    A copy of it, by `copy` or `pickle`, is a copy of the cache: a judge knows one cache.
    """

    __slots__ = ("__weakref__", "_kvcanon_sampler")

    def __init__(self, sampler: CallSampler) -> None:
        object.__setattr__(self, "_kvcanon_sampler", sampler)

    _kvcanon_sampler: CallSampler

    @property
    def counts(self) -> GuardCounts:
        """What the guard has done."""
        return self._kvcanon_sampler.counts

    @property
    def laws_checked(self) -> Collection[str]:
        """The ids of the laws that are checked."""
        return self._kvcanon_sampler.laws_checked

    @property
    def laws_exercised(self) -> dict[str, int]:
        """How often each law was exercised."""
        return self._kvcanon_sampler.laws_exercised

    # What it shares with the cache.

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # Whatever the cache has there.
        # Found without `__getattr__`, in a guard that is not made yet, too.
        sampler: CallSampler = object.__getattribute__(self, "_kvcanon_sampler")
        found = getattr(sampler.cache, name)
        is_operation = name in OPERATIONS and callable(found)
        if is_operation or (
            name not in _LOOKS and getattr(found, "__self__", None) is sampler.cache
        ):
            return GuardedMethod(self, name, found)
        return found

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._kvcanon_sampler.cache, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._kvcanon_sampler.cache, name)

    def __dir__(self) -> list[str]:
        return [*dir(self._kvcanon_sampler.cache), *OWN_NAMES]

    @property  # type: ignore[misc]  # The type of `object.__class__` may be set; nobody does.
    def __class__(self) -> type:
        return type(self._kvcanon_sampler.cache)

    def __repr__(self) -> str:
        return f"<guard of {self._kvcanon_sampler.cache!r}>"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ProductionGuard):
            other = other._kvcanon_sampler.cache
        return bool(self._kvcanon_sampler.cache == other)

    def __hash__(self) -> int:
        return hash(self._kvcanon_sampler.cache)

    def __copy__(self) -> Cache:
        return copy.copy(self._kvcanon_sampler.cache)

    def __deepcopy__(self, memo: dict[int, Any]) -> Cache:
        return copy.deepcopy(self._kvcanon_sampler.cache, memo)

    def __reduce_ex__(self, _: object) -> tuple[Callable[[Cache], Cache], tuple[Cache]]:
        return unguarded, (self._kvcanon_sampler.cache,)


def unguarded(cache: Cache) -> Cache:
    """What a pickled guard is unpickled as."""
    return cache


@define(unsafe_hash=True)
class GuardedMethod:
    """A method of the cache, whose calls the guard makes."""

    _guard: ProductionGuard
    _name: str
    __wrapped__: Callable[..., object]

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Call it."""
        sampler = self._guard._kvcanon_sampler  # noqa: SLF001  # The method of its class.
        answer = self._made(sampler, args, kwargs)
        # Else the caller would go on past the guard.
        return self._guard if answer is sampler.cache else answer

    def _made(
        self, sampler: CallSampler, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> object:
        if self._name in OPERATIONS:
            return sampler.operate(self._name, self.__wrapped__, args, kwargs)
        return sampler.pass_through(self.__wrapped__, args, kwargs)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # Whatever the method has there.
        return getattr(object.__getattribute__(self, "__wrapped__"), name)
