"""What a bare factory knows: windows, mamba states, a host tier, namespaces, eviction policies.

Who names a function or a class, and no `Adapter`, declares nothing. Such a cache is asked: a cache
that shows no pool of window slots and hands none out is judged as one without windows, and so for
mamba states and the host; one that finds every prompt under every namespace is judged without
namespaces, and one that evicts by LRU whatever the policy by LRU. A cache that pays any heed to one
of these is judged on it, so that a fault in one field of a namespace stays a fault.

Whatever goes wrong here decides nothing: the check itself will find it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from itertools import product
from typing import Any

from attrs import evolve

from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.cases.prompts import page_of
from kvcanon.conformance.check.time_limit import made_in_time
from kvcanon.conformance.protocol.adapter import (
    Adapter,
    CacheKind,
    Capability,
    Offer,
    Subject,
    Unoffered,
    make_subject,
)
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import CacheError
from kvcanon.spec.operations import Inserted
from kvcanon.spec.types import (
    CPU,
    FULL,
    GPU,
    MAMBA,
    SWA,
    Component,
    Counts,
    EvictionPolicy,
    Key,
    Medium,
    Namespace,
    WritePolicy,
)


class Ignored(StrEnum):
    """What a cache may ignore."""

    WINDOWS = "windows"
    STATES = "mamba states"
    HOST = "the host tier"
    POLICIES = "eviction policies"
    NAMESPACES = "namespaces"


WITHOUT: Mapping[Ignored, Mapping[str, Any]] = {
    Ignored.WINDOWS: {"windows_tokens": (None,)},
    Ignored.STATES: {"mamba": (False,)},
    Ignored.HOST: {"write_policies": (WritePolicy.NONE,)},
    Ignored.POLICIES: {"eviction_policies": (EvictionPolicy.LRU,)},
    Ignored.NAMESPACES: {"namespaces": False},
}
"""The fields of an offer without it."""
PLAIN = Offer(windows_tokens=(None,), mamba=(False,), write_policies=(WritePolicy.NONE,))
WITH: Mapping[Ignored, Offer] = {
    Ignored.WINDOWS: evolve(PLAIN, windows_tokens=(1, 2, 3)),
    Ignored.STATES: evolve(PLAIN, mamba=(True,)),
    Ignored.HOST: evolve(PLAIN, write_policies=(WritePolicy.WRITE_THROUGH,)),
    Ignored.POLICIES: PLAIN,
    Ignored.NAMESPACES: PLAIN,
}
"""The configurations in which a cache is asked for it."""
CONFIGS_TRIED = 20
"""How many of them are tried until a cache is made with one."""

TENANTS = (
    Namespace(),
    Namespace(extra_key="kvcanon-1"),
    Namespace(cache_salt="kvcanon-2"),
    Namespace(lora="kvcanon-3"),
    Namespace(extra_key="kvcanon-4", cache_salt="kvcanon-5", lora="kvcanon-6"),
)
"""Namespaces that differ in one field each: a cache that heeds a field keeps some apart."""
PAGES = 3
"""The pages of each prompt that is looked for."""
SLOTS = len(TENANTS) * PAGES
"""Slots for all prompts, so that nothing is evicted unasked."""
OF_THE_HOST = {Capability.EVICT_HOST, Capability.LOAD_BACK, Capability.INSERT_HOST}


def without(offer: Offer, ignores: Iterable[Ignored]) -> Offer:
    """An offer without what a cache ignores."""
    for each in ignores:
        offer = evolve(offer, **WITHOUT[each])
    return offer


def ignored_by(adapter: Adapter) -> tuple[Ignored, ...]:
    """What the caches of a bare factory ignore altogether; empty for an adapter."""
    if not adapter.is_bare or adapter.kind is not CacheKind.TREE:
        return ()
    return tuple(each for each, looks_at in LOOKS.items() if _ignores(adapter, each, looks_at))


def ignoring(name: str, ignored: Sequence[str]) -> str:
    """A line that says what a cache ignores, and how to have it judged on all."""
    full = {Ignored.WINDOWS, Ignored.STATES} <= {*ignored}
    kind = "a full-attention cache" if full else "a cache"
    leak = ""
    if Ignored.NAMESPACES in ignored:
        kind, leak = f"{kind} without namespaces", "; tenants find each other's pages"
    *others, last = ignored
    listed = f"{', '.join(others)} and {last}" if others else last
    return (
        f"{name} is judged as {kind}: it ignores {listed}{leak}. "
        "To be judged on all, name an Adapter(name, factory, Offer())."
    )


Look = Callable[[Adapter, CacheConfig], bool]
"""Whether the caches of a factory ignore something; makes them with a configuration."""


def _ignores(adapter: Adapter, feature: Ignored, looks_at: Look) -> bool:
    """Whether a cache ignores a feature, in the first configuration that its factory takes."""
    for seed in range(CONFIGS_TRIED):
        drawn, pool = draw_case(seed, WITH[feature]).config, Counts(SLOTS, PAGES, PAGES)
        host = pool if drawn.host_tier else Counts()
        config = evolve(drawn, device_slots=pool, host_slots=host)
        try:
            return made_in_time(partial(looks_at, adapter, config))
        except Unoffered:
            continue
        except Exception:  # noqa: BLE001  # A cache may raise anything.
            return False
    return False


def _has_no(component: Component, adapter: Adapter, config: CacheConfig) -> bool:
    """Whether a cache shows no pool of a component, and hands out no slot of it."""
    subject = make_subject(adapter, config)
    cache = subject.cache
    if _shows_pool(subject, component, GPU):
        return False
    try:
        slots = cache.allocate(Counts(full=1, **{component.value: 1}))
    except CacheError:
        return True
    return not slots[component]


def _has_no_host(adapter: Adapter, config: CacheConfig) -> bool:
    """Whether a cache has no operation of the host, shows no pool there, and backs nothing up."""
    subject = make_subject(adapter, config)
    if subject.can & OF_THE_HOST or _shows_pool(subject, FULL, CPU):
        return False
    inserted = _insert(subject.cache, _key(config, 0, Namespace()))
    return not inserted.backups and not inserted.backup_declined_pages


def _shows_pool(subject: Subject, component: Component, medium: Medium) -> bool:
    cache, can = subject.cache, subject.can
    if Capability.SNAPSHOT in can and (component, medium) in cache.snapshot().pools:
        return True
    return Capability.FREE_SLOTS in can and len(cache.free_slots(component, medium)) > 0


def _evicts_by_lru(adapter: Adapter, config: CacheConfig) -> bool:
    """Whether what was used least recently leaves, also by policies that take something else."""
    policies = (EvictionPolicy.LRU, EvictionPolicy.FIFO, EvictionPolicy.MRU)
    for policy, used in product(policies, (True, False)):
        subject = make_subject(adapter, evolve(config, eviction_policy=policy))
        cache, (first, second) = subject.cache, [_key(config, at, Namespace()) for at in range(2)]
        if Capability.EVICT not in subject.can:
            return False
        for key in (first, second):
            _insert(cache, key)
        if used:
            cache.match(first)
        cache.evict(Counts(full=1))
        left = [cache.match(key).device_pages == PAGES for key in (first, second)]
        if left != [used, not used]:
            return False
    return True


def _finds_all(adapter: Adapter, config: CacheConfig) -> bool:
    """Whether a cache finds the prompt of each namespace under every other as well."""
    cache = make_subject(adapter, config).cache
    for letter, owner in enumerate(TENANTS):
        key = _key(config, letter, owner)
        _insert(cache, key)
        found = {cache.match(Key(key.pages, other)).device_pages for other in TENANTS}
        if len(found) != 1 or found == {0}:
            return False
    return True


def _key(config: CacheConfig, letter: int, namespace: Namespace) -> Key:
    return Key((page_of(letter, config.page_size, bigram=config.bigram),) * PAGES, namespace)


def _insert(cache: Cache, key: Key) -> Inserted:
    return cache.insert(key, 0, cache.allocate(Counts(full=len(key))))


LOOKS: Mapping[Ignored, Look] = {
    Ignored.WINDOWS: partial(_has_no, SWA),
    Ignored.STATES: partial(_has_no, MAMBA),
    Ignored.HOST: _has_no_host,
    Ignored.POLICIES: _evicts_by_lru,
    Ignored.NAMESPACES: _finds_all,
}
"""How each is looked for."""
