"""Coverage: which laws are judged in black-box mode, and what a cache must offer for it.

With snapshots, all of a law is judged. In black-box mode it is judged as far as answers, events and
bytes show it, which is less.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeAlias

from kvcanon.conformance.protocol.adapter import Capability
from kvcanon.spec.law import Law, Need

AnyOf: TypeAlias = tuple[Capability, ...]
"""Capabilities of which one is enough."""

_EVENTS: AnyOf = (Capability.TAKE_EVENTS,)
_EVICTS: AnyOf = (Capability.EVICT, Capability.EVICT_HOST, Capability.LOAD_BACK)
_FROM_DEVICE: AnyOf = (Capability.EVICT, Capability.LOAD_BACK)
_SETTLES: AnyOf = (Capability.POLL, Capability.FLUSH)
_LOADS: AnyOf = (Capability.LOAD_BACK,)
_FREE: AnyOf = (Capability.FREE_SLOTS,)

FROM_OUTSIDE: Mapping[str, tuple[AnyOf, ...]] = {
    **dict.fromkeys(("MATCH-1", "MATCH-2", "MATCH-3", "MATCH-6"), ()),
    **dict.fromkeys(("LOCK-9", "LOCK-10"), ()),
    **dict.fromkeys(("ALLOC-1", "ALLOC-3", "ALLOC-5", "ALLOC-6"), ()),
    **dict.fromkeys(("REFUSE-1", "REFUSE-2"), ()),
    **dict.fromkeys(("EVICT-1", "REC-3"), (_EVICTS,)),
    **dict.fromkeys(("LOCK-4", "EVICT-3", "RES-3"), (_FROM_DEVICE,)),
    "EVICT-2": ((Capability.EVICT,),),
    "EVICT-5": (_EVENTS,),
    "EVICT-8": ((Capability.EVICT,), _EVENTS, _FREE),
    **dict.fromkeys(("EVENT-1", "EVENT-2", "EVENT-4", "EVENT-5", "EVENT-6"), (_EVENTS,)),
    **dict.fromkeys(("EVENT-7", "EVENT-9", "EVENT-10", "EVENT-12"), (_EVENTS,)),
    "EVENT-8": (_EVENTS, (Capability.RESET,)),
    **dict.fromkeys(("MATCH-7", "LOAD-1", "LOAD-2"), (_LOADS,)),
    **dict.fromkeys(("ASYNC-1", "ASYNC-5"), (_SETTLES,)),
    "ASYNC-6": ((Capability.FLUSH,),),
    "ALLOC-7": ((Capability.RESET,),),
    "RES-5": ((*_EVENTS, *_FREE),),
    "RES-9": ((Capability.INSERT_HOST,),),
    "DATA-1": ((Capability.READ,), (Capability.WRITE,)),
}
"""The laws that are judged in black-box mode, with the capabilities that each needs."""


def why_not_exercised(law: Law, lacks: Collection[str]) -> str:
    """Why a law was not exercised: the cache lacks something, or no case met the premise."""
    hidden: list[str] = sorted(need.value for need in law.needs if need.value in lacks)
    if Need.SNAPSHOT.value in hidden:
        # Black-box mode may judge the law, by what operations show.
        hidden = [Need.SNAPSHOT.value]
        if law.law_id in FROM_OUTSIDE:
            hidden = missing_for(law.law_id, lacks)
    if hidden:
        return f"not offered: the cache has no {' and no '.join(hidden)}"
    return f"never came up: {law.premise.words}"


def missing_for(law_id: str, lacks: Collection[str]) -> list[str]:
    """The capabilities, in words, that a cache lacks for a law to be judged in black-box mode."""
    groups = FROM_OUTSIDE.get(law_id, ())
    gone = [group for group in groups if all(each.value in lacks for each in group)]
    return [" or ".join(each.value for each in group) for group in gone]
