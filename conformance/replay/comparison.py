"""Comparisons: the same requests on a cache with pools of several sizes, tiers and policies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product

from attrs import frozen

from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.conformance.replay.fitted_cache import Fit, make_cache, store_of
from kvcanon.conformance.replay.replay import Replay, replay
from kvcanon.conformance.replay.workload import NO_POOL, PoolSize, WorkloadSizes
from kvcanon.conformance.replay.workloads.request import Request
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import EvictionPolicy, WritePolicy


@frozen
class Variants:
    """The values of each option that are compared; an option without values keeps its default."""

    pools: tuple[PoolSize, ...] = ()
    hosts: tuple[PoolSize, ...] = ()
    write_policies: tuple[WritePolicy, ...] = ()
    eviction_policies: tuple[EvictionPolicy, ...] = ()

    @property
    def are_several(self) -> bool:
        """Whether there is something to compare."""
        return any(
            len(each) > 1
            for each in (self.pools, self.hosts, self.write_policies, self.eviction_policies)
        )

    def options(self) -> Iterator[dict[str, object]]:
        """The options of each run, sizes of the device pool last."""
        names = "eviction_policy", "write_policy", "host", "pool"
        values: tuple[Sequence[object], ...] = (
            self.eviction_policies,
            self.write_policies,
            self.hosts,
            self.pools,
        )
        for some in product(*(each or (None,) for each in values)):
            yield dict(zip(names, some, strict=True))


@frozen
class ComparedRun:
    """A run, and the cache that it was on."""

    sizes: WorkloadSizes
    config: CacheConfig
    result: Replay

    @property
    def series(self) -> str:
        """The policy and the host tier: runs that share both make one curve."""
        host = f", host {self.sizes.host}" if self.config.host_tier else ""
        write = f", {self.config.write_policy}" if self.config.host_tier else ""
        name = "disk" if self.sizes.external == NO_POOL else "external"
        store = f", {name} {self.sizes.store}" if self.sizes.store != NO_POOL else ""
        return f"{self.config.eviction_policy}{host}{store}{write}"


def compare(
    adapter: Adapter,
    usual: WorkloadSizes,
    variants: Variants,
    options: dict[str, object],
    requests: Sequence[Request],
) -> Iterator[ComparedRun]:
    """Replay the requests with each combination, from an empty cache. Raises: as `replay`."""
    for chosen in variants.options():
        given = options | chosen
        fit = Fit(adapter, {name for name, value in given.items() if value is not None})
        sizes = fit.sizes(usual.with_options(**given))
        fitted = fit.requests(requests)
        store = store_of(sizes)
        subject = make_cache(adapter, sizes.config(fitted), store)
        result = replay(subject, fitted, profile=adapter.profile, store=store)
        yield ComparedRun(sizes, subject.cache.config, result)


def by_series(runs: Iterable[ComparedRun]) -> dict[str, list[ComparedRun]]:
    """The runs of each curve."""
    found: dict[str, list[ComparedRun]] = {}
    for run in runs:
        found.setdefault(run.series, []).append(run)
    return found
