"""The table of methods in docs/adapters.md, made from what each law needs to see."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kvcanon.conformance.protocol.adapter import Capability
from kvcanon.spec.law import LAWS, Law

IN_TURN: tuple[tuple[Capability, ...], ...] = (
    (Capability.EVICT,),
    (Capability.TAKE_EVENTS,),
    (Capability.RESET,),
    (Capability.READ, Capability.WRITE),
    (Capability.FREE_SLOTS,),
    (Capability.LOAD_BACK, Capability.INSERT_HOST, Capability.EVICT_HOST),
    (Capability.POLL, Capability.FLUSH),
)
"""What is most often added to the operations that every cache has, one after the other."""


def method_table() -> Iterator[str]:
    """How many laws can be checked of a cache that has more and more methods."""
    yield "| a cache by prefixes that has | laws that can be checked |"
    yield "|---|---|"
    there: set[str] = set()
    yield f"| the six operations alone | {_count(there)} |"
    for more in IN_TURN:
        there |= {each.value for each in more}
        yield f"| and {', '.join(f'`{each.value}`' for each in more)} | {_count(there)} |"
    yield f"| and `snapshot` | {len(LAWS)}, those of what it hides left out |"


def _count(there: Collection[str]) -> int:
    return sum(_is_shown(law, there) for law in LAWS.values())


def _is_shown(law: Law, there: Collection[str]) -> bool:
    """Whether a law shows without snapshots, to who may call these methods."""
    groups = law.from_outside
    return groups is not None and all(
        any(method.__name__ in there for method in group) for group in groups
    )
