"""Overrides: a plain cache with some of its rules replaced; other plain caches keep theirs.

The plain cache looks up its rules as functions of modules. An overridden cache replaces them during
each call, and restores them before the call returns. So one replaced function makes a mutant or a
variant, which runs in one process with the original.

An override is active only during calls of its own cache. A copy that the engine performs later
still does what was decided at its enqueue.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from types import ModuleType
from typing import Any, ParamSpec, Protocol, TypeVar

from attrs import frozen

from kvcanon.conformance.protocol.wrapped_cache import Answer, Arguments, WrappedCache
from kvcanon.reference import ReferenceCache
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.operations import Operation
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.tier import StoreQueue
from kvcanon.spec.transfer import Agree, Completion, TransferEngine
from kvcanon.spec.types import Component, Medium, Slot


@frozen
class Override:
    """A name in a module or a class, and its replacement."""

    owner: ModuleType | type
    name: str
    replacement: Any


class Overrides:
    """Collects overrides; the functions that plant mutants and variations write into it."""

    def __init__(self) -> None:
        self.collected: list[Override] = []

    def setattr(self, owner: ModuleType | type, name: str, replacement: object) -> None:
        """Replace a function, which must exist."""
        if not hasattr(owner, name):
            raise AttributeError(f"{owner.__name__} has no {name} to override")
        self.collected.append(Override(owner, name, replacement))


Plant = Callable[[Overrides], None]
Called = ParamSpec("Called")
Result = TypeVar("Result")


_REPLACED: dict[tuple[ModuleType | type, str], list[Any]] = {}
"""What each replaced name was, then the replacements of the calls under way, the latest last."""


def _begin(overrides: Sequence[Override]) -> None:
    """Replace rules for a call."""
    for each in overrides:
        place = (each.owner, each.name)
        there = _REPLACED.setdefault(place, [getattr(each.owner, each.name)])
        there.append(each.replacement)
        setattr(each.owner, each.name, each.replacement)


def _end(overrides: Sequence[Override]) -> None:
    """Drop the replacements of a call, which need not be the latest: ranks take turns in calls."""
    for each in reversed(overrides):
        place = (each.owner, each.name)
        there = _REPLACED[place]
        at = max(at for at, other in enumerate(there) if at and other is each.replacement)
        del there[at]
        setattr(each.owner, each.name, there[-1])
        if len(there) == 1:
            del _REPLACED[place]


class OverriddenCache(WrappedCache):
    """A cache with overrides that are active during its calls."""

    def __init__(self, make: Callable[[], Cache], overrides: Sequence[Override]) -> None:
        self._overrides = tuple(overrides)
        super().__init__(self._with(make))

    def _around(
        self,
        operation: Operation,  # noqa: ARG002  # All operations are wrapped alike.
        call: Callable[Arguments, Answer],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Answer:
        return self._with(call, *args, **kwargs)

    def arrived(self) -> tuple[Completion, ...]:
        """Return the transfers that can settle."""
        return self._with(self._cache.arrived)

    def snapshot(self) -> Snapshot:
        """Return the whole state, as a value."""
        return self._with(self._cache.snapshot)

    def free_slots(self, component: Component, medium: Medium) -> Collection[Slot]:
        """Return the free slots of a pool."""
        return self._with(self._cache.free_slots, component, medium)

    def read(self, component: Component, medium: Medium, slot: Slot) -> bytes:
        """Return the bytes of a slot."""
        return self._with(self._cache.read, component, medium, slot)

    def write(self, component: Component, slot: Slot, data: bytes) -> None:
        """Set the bytes of a device slot that a request holds."""
        self._with(self._cache.write, component, slot, data)

    def _with(
        self, call: Callable[Called, Result], *args: Called.args, **kwargs: Called.kwargs
    ) -> Result:
        _begin(self._overrides)
        try:
            return call(*args, **kwargs)
        finally:
            _end(self._overrides)


class MakeOverridden(Protocol):
    """A factory of plain caches with overrides."""

    def __call__(
        self,
        config: CacheConfig,
        engine: TransferEngine | None = None,
        agree: Agree | None = None,
        store: StoreQueue | None = None,
    ) -> Cache:
        """Make a cache, as `ReferenceCache` does."""


def overriding(plant: Plant) -> MakeOverridden:
    """Return a factory of plain caches with the overrides that `plant` makes."""
    overrides = Overrides()
    plant(overrides)

    def make(
        config: CacheConfig,
        engine: TransferEngine | None = None,
        agree: Agree | None = None,
        store: StoreQueue | None = None,
    ) -> Cache:
        below = {} if store is None else {"store": store}
        return OverriddenCache(
            lambda: ReferenceCache(config, engine, agree, **below), overrides.collected
        )

    return make
