"""Faults of what nothing asked for: designs of other caches that their profile does not declare."""

from __future__ import annotations

from kvcanon.lab.mutants.planted.entry import mutant
from kvcanon.lab.variants import policies, unasked

mutant("ASK-1")(unasked.unused_leaves_expire)
mutant("ASK-1")(unasked.allocations_evict)
mutant("ASK-2")(unasked.prefetches)
mutant("ASK-3")(unasked.backups_at_the_next_poll)
mutant("ASK-4")(unasked.compaction)
mutant("ASK-5")(policies.seen_twice_is_admitted)
mutant("ASK-6")(policies.padding_slot)
