"""A cache with one fault, as a change to an engine might bring it in: evictions ignore locks.

https://github.com/sgl-project/sglang/issues/29352 reports one that did the same.
"""

from __future__ import annotations

from kvcanon.conformance.protocol.adapter import Adapter, Offer
from kvcanon.reference import ReferenceCache
from kvcanon.spec.operations import Evicted
from kvcanon.spec.types import Counts, WritePolicy


class IgnoresLocks(ReferenceCache):
    """The plain cache, but what a running request has locked may be evicted like anything else."""

    def evict(self, counts: Counts) -> Evicted:
        """Free device slots, as if nothing were locked."""
        every = [data for node in self._state.nodes.values() for data in node.data.values()]
        locks = [data.lock_refs for data in every]
        for data in every:
            data.lock_refs = 0
        try:
            return super().evict(counts)
        finally:
            for data, refs in zip(every, locks, strict=True):
                data.lock_refs = refs


OFFER = Offer(write_policies=(WritePolicy.NONE,), mamba=(False,), namespaces=False)
ADAPTER = Adapter("ignores-locks", IgnoresLocks, OFFER)
"""What `kvcanon check` names."""
