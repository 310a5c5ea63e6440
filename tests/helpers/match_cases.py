"""States and matches that the tests of MATCH laws share."""

from __future__ import annotations

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.operations import Match, Matched
from kvcanon.spec.snapshot import (
    NodeState,
    Snapshot,
)
from kvcanon.spec.types import (
    Counts,
    Key,
    Namespace,
    Slots,
    TransferId,
    WritePolicy,
    make_key,
)
from states import ROOT, node, on, state_of
from telling import ask, step

POOLS = Counts(full=16, swa=16, mamba=4)

TENANT = Namespace(cache_salt="tenant")


def config(
    window_tokens: int | None = 2, *, mamba: bool = False, page_size: int = 1
) -> CacheConfig:
    """A cache with a host tier."""
    return CacheConfig(
        page_size=page_size,
        window_tokens=window_tokens,
        mamba=mamba,
        device_slots=POOLS,
        host_slots=POOLS,
        write_policy=WritePolicy.WRITE_THROUGH,
    )


WINDOWED, PLAIN, RECURRENT = config(), config(None), config(None, mamba=True)

KEY = make_key([1, 2, 3, 4], 1)


def path(*nodes: NodeState, config: CacheConfig = WINDOWED) -> Snapshot:
    """A state of nodes, with a prompt of another namespace beside them."""
    stranger = node(9, ROOT, [1, 2, 3], full=on([13, 14, 15]), namespace=TENANT)
    return state_of(config, *nodes, stranger)


def matched(
    prefix_pages: int,
    device_pages: int,
    slots: Slots | None = None,
    pending: tuple[TransferId, ...] = (),
) -> Matched:
    """The answer of a match; the laws about lengths do not look at slots."""
    return Matched(prefix_pages, device_pages, slots or Slots(), pending)


def match(
    law_id: str, state: Snapshot, outcome: Matched, key: Key = KEY, after: Snapshot | None = None
) -> list[str]:
    """What a law reports of a match that left the state as it was, or as `after`."""
    return ask(law_id, step(state, Match(key), after or state, outcome))


UPPER = node(1, ROOT, [1, 2], full=on([0, 1], [0, 1]), swa=on([0, 1]))

LOWER = node(2, 1, [3, 4], full=on([2, 3]), swa=on([2, 3]))

HELD = path(UPPER, LOWER)


def loading(*, upper: TransferId | None, lower: TransferId | None) -> Snapshot:
    """The path of `KEY` while transfers load it."""
    return path(
        node(1, ROOT, [1, 2], full=on([0, 1], [0, 1], loading=upper), swa=on([0, 1], [0, 1])),
        node(2, 1, [3, 4], full=on([2, 3], [2, 3]), swa=on([2, 3], [2, 3], loading=lower)),
    )
