"""The scopes that have names.

What readers get wrong: these are not the smallest in which something can go wrong, which are in
`founding`, nor the largest that can be exhausted. They are as much as a few minutes go through; and
those that are called deep, a night.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import evolve

from kvcanon.conformance.exploring.founding import FOUNDING
from kvcanon.conformance.exploring.scope import ONE_FULL, ONE_STATE, ONE_SWA, Scope
from kvcanon.conformance.faults import Fault
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import Counts

_FULL = Scope(
    "full",
    "full data alone: 4 slots, 4 prompts of 3 pages, 2 locks and a request",
    CacheConfig(device_slots=Counts(4)),
    fans=(2, 2, 1),
    receipts=2,
    requests=1,
)
_FULL_SWA = Scope(
    "full_swa",
    "full and window data: 4 and 3 slots, 2 prompts of 3 pages, a lock and a request",
    CacheConfig(window_tokens=1, device_slots=Counts(4, 3)),
    fans=(2, 1, 1),
    evictions=(ONE_FULL, ONE_SWA),
    receipts=1,
    requests=1,
)
_WRITE_THROUGH = Scope(
    "write_through",
    "a host tier with write-through: 2 slots on the device and 3 on the host, 2 prompts of 2 pages",
    CacheConfig(device_slots=Counts(2), host_slots=Counts(3), write_policy="write_through"),
    fans=(2, 1),
    host_evictions=(ONE_FULL,),
)
_WRITE_BACK = Scope(
    "write_back",
    "a host tier with write-back: 3 slots on the device and 2 on the host, 2 prompts of 2 pages",
    CacheConfig(device_slots=Counts(3), host_slots=Counts(2), write_policy="write_back"),
    fans=(2, 1),
    host_evictions=(ONE_FULL,),
)
_MAMBA = Scope(
    "mamba",
    "recurrent states: 4 full slots and 3 of states, 4 prompts of 2 pages, a lock and a request",
    CacheConfig(mamba=True, device_slots=Counts(4, 0, 3)),
    fans=(2, 2),
    evictions=(ONE_FULL, ONE_STATE),
    requests=1,
)
_NAMESPACES = Scope(
    "namespaces",
    "two namespaces: 4 slots, 2 prompts of 2 pages in each, 2 locks and a request",
    CacheConfig(device_slots=Counts(4)),
    fans=(2, 1),
    namespaces=(1, 2),
    receipts=2,
    requests=1,
)


def _group(*scopes: Scope) -> dict[str, Scope]:
    return {scope.name: scope for scope in scopes}


NAMED = _group(_FULL, _FULL_SWA, _WRITE_THROUGH, _WRITE_BACK, _MAMBA, _NAMESPACES)
"""As much as a few minutes go through, each."""

DEEP = _group(
    evolve(
        _FULL,
        name="full_deep",
        words="full data alone: 6 slots, 6 prompts of 2 pages, 2 locks and a request",
        config=CacheConfig(device_slots=Counts(6)),
        fans=(3, 2),
    ),
    evolve(
        _FULL_SWA,
        name="full_swa_deep",
        words="full and window data: 5 and 4 slots, 4 prompts of 3 pages, some without windows",
        config=CacheConfig(window_tokens=1, device_slots=Counts(5, 4)),
        fans=(2, 2, 1),
        bare_pages=(0, 1),
    ),
    evolve(
        _WRITE_THROUGH,
        name="write_through_deep",
        words="write-through: 3 slots on either side, pages from storage, bytes that move early",
        config=evolve(_WRITE_THROUGH.config, device_slots=Counts(3)),
        fetches=True,
        early_bytes=True,
    ),
    evolve(
        _WRITE_BACK,
        name="write_back_deep",
        words="write-back: 3 slots on either side, 4 prompts of 2 pages, some from storage",
        config=evolve(_WRITE_BACK.config, host_slots=Counts(3)),
        fans=(2, 2),
        fetches=True,
    ),
    evolve(
        _MAMBA,
        name="mamba_deep",
        words="recurrent states: 5 full slots and 4 of states, 4 prompts of 2 pages, 2 locks",
        config=evolve(_MAMBA.config, device_slots=Counts(5, 0, 4)),
        receipts=2,
    ),
    evolve(
        _NAMESPACES,
        name="namespaces_deep",
        words="two namespaces: 5 slots, 4 prompts of 2 pages in each, 2 locks and a request",
        config=CacheConfig(device_slots=Counts(5)),
        fans=(2, 2),
    ),
    evolve(
        _WRITE_THROUGH,
        name="full_swa_write_through_deep",
        words="window data on both sides under write-through: 3 and 2 slots, 2 prompts of 2 pages",
        config=evolve(
            _WRITE_THROUGH.config,
            window_tokens=1,
            device_slots=Counts(3, 2),
            host_slots=Counts(3, 2),
        ),
        evictions=(ONE_FULL, ONE_SWA),
        host_evictions=(ONE_FULL, ONE_SWA),
    ),
    evolve(
        _WRITE_BACK,
        name="full_swa_write_back_deep",
        words="window data on both sides under write-back: 3 and 2 slots, 2 prompts of 2 pages",
        config=evolve(
            _WRITE_BACK.config,
            window_tokens=1,
            device_slots=Counts(3, 2),
            host_slots=Counts(2, 1),
        ),
        evictions=(ONE_FULL, ONE_SWA),
        host_evictions=(ONE_FULL, ONE_SWA),
    ),
)
"""As much as a night goes through, each."""

GROUPS: Mapping[str, Mapping[str, Scope]] = {
    "all": NAMED,
    "founding": _group(*FOUNDING.values()),
    "deep": DEEP,
}
"""Scopes that are explored together, by the name that stands for them."""

SCOPES: dict[str, Scope] = {
    name: scope for group in GROUPS.values() for name, scope in group.items()
}
"""Every scope by name."""


def scopes_named(names: str) -> list[Scope]:
    """The scopes, or groups of scopes, whose names are given. Raises: Fault."""
    chosen = [_of_name(name.strip()) for name in names.split(",") if name.strip()]
    if not chosen:
        raise Fault(f"--scope names no scope; {_CHOICES}")
    return list({scope.name: scope for scopes in chosen for scope in scopes}.values())


def _of_name(name: str) -> list[Scope]:
    if name in GROUPS:
        return list(GROUPS[name].values())
    if name not in SCOPES:
        raise Fault(f"there is no scope {name!r}; {_CHOICES}")
    return [SCOPES[name]]


_CHOICES = f"name {', '.join(GROUPS)}, or some of {', '.join(SCOPES)}"
