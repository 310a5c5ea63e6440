"""The enums of kvcanon.spec in the order in which the native core numbers their members.

The core exports its values as `_core.ENUMS`, and each tuple here is built from them: a member's
code is its index. Importing this module fails where core and spec do not have the same members. It
checks at import, and not in a test, because the usual cause is a core that was built from older
sources.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

from kvcanon.optimized import _core
from kvcanon.spec.operations import LoadDecision
from kvcanon.spec.transfer import Direction, TransferStatus
from kvcanon.spec.types import CPU, GPU, Component, Counts, EvictionPolicy, Medium, WritePolicy

Member = TypeVar("Member", bound=StrEnum)

EVENT_KINDS = frozenset({"stored", "removed", "cleared"})
"""Of `_core.Event`: one for each class of kvcanon.spec.events."""


def _coded(name: str, members: frozenset[str]) -> tuple[str, ...]:
    """The core's values of an enum. Raises: ImportError where they are not those of spec."""
    values = _core.ENUMS[name]
    if frozenset(values) != members or len(values) != len(members):
        raise ImportError(
            f"the native core has {name} {', '.join(values)}, and kvcanon.spec has "
            f"{', '.join(sorted(members))}; build the core anew: reinstall kvcanon, or in a "
            "checkout run `make native`"
        )
    return values


def _members(kind: type[Member]) -> tuple[Member, ...]:
    values = _coded(kind.__name__, frozenset(each.value for each in kind))
    return tuple(kind(value) for value in values)


COMPONENTS = _members(Component)
ALL_MEDIA = _members(Medium)
"""With those that a store below the host may be on."""
MEDIA = ALL_MEDIA[: len((GPU, CPU))]
"""Those that have pools."""
DIRECTIONS = _members(Direction)
STATUSES = _members(TransferStatus)
WRITE_POLICIES = _members(WritePolicy)
EVICTION_POLICIES = _members(EvictionPolicy)
_members(LoadDecision)
_coded("EventKind", EVENT_KINDS)


def three(counts: Counts) -> tuple[int, int, int]:
    """Counts as the core takes them."""
    return counts.full, counts.swa, counts.mamba
