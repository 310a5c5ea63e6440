"""Caches for a replay: made with sizes that the cache offers, and what of a replay they leave out.

A value that is given on the command line must be one that the cache offers. A usual value is
replaced by the nearest one that it offers, and the report says so.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeVar

from attrs import evolve, field, frozen

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.protocol.adapter import (
    Adapter,
    CacheKind,
    Capability,
    RequestSubject,
    Subject,
    Unoffered,
    make_request_subject,
    make_stored_subject,
    make_subject,
)
from kvcanon.conformance.protocol.offered import ALL
from kvcanon.conformance.replay.store import ReplayStore
from kvcanon.conformance.replay.workload import NO_POOL, PoolSize, WorkloadSizes
from kvcanon.conformance.replay.workloads.request import Request
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import DEFAULT_NAMESPACE, DISK, EXTERNAL, WritePolicy

Value = TypeVar("Value")

STATES = 64
"""The pool of mamba states of a cache that has them always."""

OPTIONS = {
    "window_tokens": "--window",
    "pool": "--pool-tokens",
    "host": "--host-tokens",
    "disk": "--disk-tokens",
    "external": "--external-tokens",
}
"""The options of sizes that have another name."""

FULL_ALONE = "a store keeps full data alone"
"""Why a cache over a store has neither a window nor mamba states."""

LEFT_OUT = {
    Capability.EVICT: "without evict, prompts that do not fit are rejected",
    Capability.TAKE_EVENTS: "without take_events, no events are counted",
    Capability.SNAPSHOT: "without snapshot, the tree is not shown",
}
"""What a replay says of a cache that lacks an operation."""


@frozen
class Fit:
    """The sizes of a replay, brought to what a cache offers."""

    adapter: Adapter
    given: Collection[str]
    """The names of the sizes that the command line gives."""
    notes: list[str] = field(factory=list)
    """What is not as usual, and what is left out."""

    def sizes(self, usual: WorkloadSizes) -> WorkloadSizes:
        """Return sizes that the cache offers. Raises: UsageError."""
        offer = self.adapter.offer
        if usual.store != NO_POOL:
            usual = self._above_store(usual)
        if False not in offer.bigram:
            raise UsageError(
                f"{self.adapter.name} offers keys of bigrams alone; a replay has keys of tokens"
            )
        window = self._one_of(
            "window_tokens", usual.window_tokens or None, offer.windows_tokens, ALL.windows_tokens
        )
        events = self._one_of("events", usual.events, offer.events, ALL.events)
        sizes = evolve(
            usual,
            page_size=self._one_of("page_size", usual.page_size, offer.page_sizes, ALL.page_sizes),
            window_tokens=window or 0,
            mamba_states=self._mamba_states(usual.mamba_states),
            eviction_policy=self._one_of(
                "eviction_policy",
                usual.eviction_policy,
                offer.eviction_policies,
                ALL.eviction_policies,
            ),
            events=events,
        )
        return self._pool(self._host_tier(sizes))

    def requests(self, requests: Sequence[Request]) -> tuple[Request, ...]:
        """Return the requests with keys that the cache offers."""
        if self.adapter.offer.namespaces or all(
            each.namespace == DEFAULT_NAMESPACE for each in requests
        ):
            return tuple(requests)
        self.notes.append("all prompts are in one namespace")
        return tuple(evolve(each, namespace=DEFAULT_NAMESPACE) for each in requests)

    def note_missing(self, subject: Subject | RequestSubject, config: CacheConfig) -> None:
        """Note what of a replay the cache lacks an operation for."""
        for capability, text in LEFT_OUT.items():
            # A cache of requests evicts when it admits one.
            needed = capability is not Capability.EVICT or isinstance(subject, Subject)
            asked = config.events or capability is not Capability.TAKE_EVENTS
            if needed and asked and capability not in subject.can:
                self.notes.append(text)
        if config.host_tier and Capability.LOAD_BACK not in subject.can:
            self.notes.append("without load_back, nothing comes back from the host")

    def _one_of(
        self, name: str, usual: Value, offered: tuple[Value, ...], unlimited: tuple[Value, ...]
    ) -> Value:
        """Return the offered value that is nearest to the usual one. Raises: UsageError."""
        if usual in offered or offered == unlimited:
            return usual
        if name in self.given:
            values = ", ".join(str(each) for each in dict.fromkeys(offered))
            option = OPTIONS.get(name, f"--{name.replace('_', '-')}")
            raise UsageError(
                f"{self.adapter.name} does not offer {option} {usual}; it offers {values}"
            )
        chosen = _nearest(usual, offered)
        self.notes.append(f"{name.replace('_', ' ')} {chosen}, as {usual} is not offered")
        return chosen

    def _above_store(self, usual: WorkloadSizes) -> WorkloadSizes:
        """Return the sizes of a cache that may have a store below it. Raises: UsageError."""
        below = OPTIONS["disk" if usual.external == NO_POOL else "external"]
        if NO_POOL not in {usual.disk, usual.external}:
            raise UsageError("--disk-tokens and --external-tokens exclude each other; give one")
        if not self.adapter.offer.stores or self.adapter.kind is CacheKind.REQUEST:
            raise UsageError(f"{self.adapter.name} offers no store for {below} to be")
        for name in ("window_tokens", "mamba_states"):
            if name in self.given and getattr(usual, name):
                option = OPTIONS.get(name, f"--{name.replace('_', '-')}")
                raise UsageError(f"{below} and {option} exclude each other: {FULL_ALONE}")
        if usual.host == NO_POOL and {"host", "write_policy"} & set(self.given):
            raise UsageError(f"{below} needs a host tier above the store; give --host-tokens")
        if usual.window_tokens:
            self.notes.append(f"no window, as {FULL_ALONE}")
        host = usual.pool if usual.host == NO_POOL else usual.host
        if host != usual.host:
            self.notes.append(f"a host pool of {host} tokens, which a store needs above it")
        return evolve(usual, window_tokens=0, mamba_states=0, host=host)

    def _mamba_states(self, usual: int) -> int:
        has_states = self._one_of("mamba_states", usual > 0, self.adapter.offer.mamba, ALL.mamba)
        return (usual or STATES) if has_states else 0

    def _host_tier(self, sizes: WorkloadSizes) -> WorkloadSizes:
        """Return the sizes with a host tier only if one is offered. Raises: UsageError."""
        offered, usual = self.adapter.offer.write_policies, sizes.write_policy
        if not sizes.host.tokens and sizes.host.tokens is not None:
            usual = WritePolicy.NONE
        if usual in offered:
            return sizes
        if {"write_policy", "host"} & set(self.given):
            raise UsageError(
                f"{self.adapter.name} does not offer --write-policy {usual}; it offers "
                f"{', '.join(offered)}"
            )
        if WritePolicy.NONE in offered:
            self.notes.append("no host tier, as none is offered")
            return evolve(sizes, host=NO_POOL, write_policy=WritePolicy.NONE)
        self.notes.append(f"write policy {offered[0]}, as {usual} is not offered")
        host = sizes.host if sizes.host.tokens != 0 else sizes.pool
        return evolve(sizes, host=host, write_policy=offered[0])

    def _pool(self, sizes: WorkloadSizes) -> WorkloadSizes:
        """Return the sizes with a pool that is offered. Raises: UsageError."""
        offer, tokens = self.adapter.offer, sizes.pool.tokens
        if tokens is None:
            return sizes
        slots = tokens // sizes.page_size
        most = None if offer.most_slots == ALL.most_slots else offer.most_slots
        wanted = max(slots, offer.least_slots)
        wanted = wanted if most is None else min(wanted, most)
        if wanted == slots:
            return sizes
        if "pool" in self.given:
            limits = f"at least {offer.least_slots}" + ("" if most is None else f", at most {most}")
            raise UsageError(
                f"--pool-tokens {tokens} makes a pool of {slots} pages; {self.adapter.name} offers "
                f"{limits}"
            )
        self.notes.append(f"a pool of {wanted:,} pages, as {slots:,} is not offered")
        return evolve(sizes, pool=PoolSize(wanted * sizes.page_size))


def store_of(sizes: WorkloadSizes) -> ReplayStore | None:
    """An empty store of these sizes; None if they have none."""
    if sizes.store == NO_POOL:
        return None
    medium = DISK if sizes.external == NO_POOL else EXTERNAL
    return ReplayStore(sizes.store_pages(), medium, sizes.sharers)


def make_cache(
    adapter: Adapter, config: CacheConfig, store: ReplayStore | None = None
) -> Subject | RequestSubject:
    """Make an empty cache that ends its copies itself, over a store if one is given.

    Raises: UsageError.
    """
    try:
        if store is not None:
            return make_stored_subject(adapter, config, store.queue)
        if adapter.kind is CacheKind.REQUEST:
            return make_request_subject(adapter, config)
        return make_subject(adapter, config, own_copies=True)
    except Unoffered as refusal:
        raise UsageError(
            f"{refusal}; choose others with --page-size, --window, --pool-tokens, --host-tokens"
        ) from refusal


def _nearest(usual: Value, offered: Sequence[Value]) -> Value:
    """Return the number nearest to the usual one; else the first that is offered."""
    numbers = [each for each in offered if isinstance(each, int) and not isinstance(each, bool)]
    if not numbers or not isinstance(usual, int) or isinstance(usual, bool):
        return offered[0]
    return min(numbers, key=lambda each: (abs(each - usual), each))
