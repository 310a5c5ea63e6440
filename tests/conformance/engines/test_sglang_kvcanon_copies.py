"""Copies to the host under SGLang's controller, case by case: each script broke a law once."""

from __future__ import annotations

import pytest

from in_peer import run_in

pytestmark = pytest.mark.nightly

RELEASE = "sglang==0.5.23"

WINDOWS_DURING_A_COPY = """
from kvcanon.conformance import judged, write_stamps
from kvcanon.spec.types import Counts, Key, Slots
CASE = {
    "config": {
        "page_size": 2, "window_tokens": 3, "write_policy": "write_through",
        "device_slots": {"full": 6, "swa": 6}, "host_slots": {"full": 6, "swa": 6},
    },
    "actions": [],
    "drain": [],
}
with judged("sglang-kvcanon", CASE, laws=["RES-5", "EVENT-1", "EVENT-2"]) as (cache, _):
    first, second, third = (
        Key(((1, 1), *rest)) for rest in ([(2, 2), (3, 3)], [(2, 2), (4, 4)], [(5, 5)])
    )
    slots = cache.allocate(Counts(full=3, swa=3))
    write_stamps(cache, first, slots)
    cache.free(Slots(swa=slots.swa[:2]))
    cache.insert(first, 0, Slots(full=slots.full, swa=slots.swa[2:]))
    slots = cache.allocate(Counts(full=3, swa=3))
    write_stamps(cache, second, slots)
    cache.insert(second, 0, slots)
    cache.match(third)
    cache.flush()
    cache.take_events()
"""
"""Window data comes back to the upper part of a node whose copy to the host is in flight, which is
cut again before either copy has ended."""

WINDOWS_ALONE = """
from kvcanon.conformance import judged, write_stamps
from kvcanon.spec.types import Counts, Key
CASE = {
    "config": {
        "page_size": 2, "window_tokens": 4, "write_policy": "write_back",
        "device_slots": {"full": 8, "swa": 8}, "host_slots": {"full": 8, "swa": 4},
    },
    "actions": [],
    "drain": [],
}
with judged("sglang-kvcanon", CASE, laws=["EVICT-8", "REC-3", "DATA-1"]) as (cache, _):
    first, second = (Key(((1, 1), (2, 2), (3, 3), last)) for last in ((4, 4), (5, 5)))
    slots = cache.allocate(Counts(full=4, swa=4))
    write_stamps(cache, first, slots)
    cache.insert(first, 0, slots)
    cache.evict(Counts(swa=2))
    cache.flush()
    cache.evict_host(Counts(swa=2))
    slots = cache.allocate(Counts(full=4, swa=4))
    write_stamps(cache, second, slots)
    cache.insert(second, 0, slots)
    while cache.evict(Counts(full=1)).freed.full:
        cache.flush()
"""
"""Window data comes back to pages whose full data the host has, and is evicted with them."""


STATE_DURING_A_COPY = """
from kvcanon.conformance import judged, write_stamps
from kvcanon.spec.types import Counts, Key
CASE = {
    "config": {
        "page_size": 1, "mamba": True, "write_policy": "write_through_selective",
        "device_slots": {"full": 6, "mamba": 3}, "host_slots": {"full": 6, "mamba": 3},
    },
    "actions": [],
    "drain": [],
}
with judged("sglang-kvcanon", CASE, laws=["RES-5", "ASYNC-2"]) as (cache, _):
    for tokens in ((1, 2), (1, 3), (1,)):
        key = Key(tuple((token,) for token in tokens))
        slots = cache.allocate(Counts(full=len(key.pages), mamba=1))
        write_stamps(cache, key, slots)
        cache.insert(key, 0, slots)
    cache.flush()
"""
"""A state comes to a node whose copy to the host is in flight, and is known by that node."""

LONG_HANDLES = """
from array import array
from kvcanon.optimized.sglang import core_state
remake = core_state.remake
def remake_old(*given):
    made = remake(*given)
    while made.nodes.root() < 1 << 49:
        made.nodes.forget()
    # With a lock, the nodes that come next have longer handles than all before them.
    end = made.nodes.insert(array("q", [1]), 0, 0, 0, False, 0, 0).end
    made.nodes.lock(end, True, True, ())
    made.nodes.forget()
    return made
core_state.remake = remake_old
"""
"""Put before a script: its nodes have the handles of a server that has made very many."""

DECLINED = """
from kvcanon.optimized.sglang.copies import Copies
Copies.is_declined = lambda copies: bool(copies.nodes_by_name)
"""
"""Put before a script: a copy of a node that names one in flight is not made."""

NO_NAME_LEFT = """
    import gc
    from kvcanon.optimized.sglang.tree_core import KvcanonTreeCore
    (core,) = (each for each in gc.get_objects() if type(each) is KvcanonTreeCore)
    copies = core.state.copies
    assert copies.last_name == -2, "no copy had a further name"
    assert not copies.nodes_by_name, copies.nodes_by_name
"""
"""Put after a script: the further name that a node had for a copy is forgotten."""

STATE_OF_A_WINDOW = """
from kvcanon.conformance import judged, write_stamps
from kvcanon.spec.types import Counts, Key
CASE = {
    "config": {
        "page_size": 1, "window_tokens": 1, "mamba": True, "write_policy": "write_back",
        "device_slots": {"full": 4, "swa": 4, "mamba": 3},
        "host_slots": {"full": 4, "swa": 4, "mamba": 2},
    },
    "actions": [],
    "drain": [],
}
with judged("sglang-kvcanon", CASE, laws=["EVICT-8", "REC-3"]) as (cache, _):
    def serve(*tokens, reused=0):
        key = Key(tuple((token,) for token in tokens))
        count = len(tokens) - reused
        slots = cache.allocate(Counts(full=count, swa=count, mamba=1))
        write_stamps(cache, key, slots)
        cache.insert(key, reused, slots)
    serve(1, 2)
    cache.evict(Counts(full=2))
    cache.flush()
    serve(1)
    serve(1, 2, reused=1)
    cache.evict(Counts(swa=1))
    cache.flush()
"""
"""A window whose pages have a copy is evicted, and takes a state that has none with it."""

CUT_AND_EVICTED = """
from kvcanon.conformance import judged, write_stamps
from kvcanon.spec.types import Counts, Key
CASE = {
    "config": {
        "page_size": 1, "window_tokens": 4, "write_policy": "write_through",
        "device_slots": {"full": 8, "swa": 8}, "host_slots": {"full": 5, "swa": 5},
    },
    "actions": [],
    "drain": [],
}
with judged("sglang-kvcanon", CASE, laws=["RES-10", "EVENT-4"]) as (cache, _):
    for tokens, reused in (((0, 0, 1, 1), 0), ((0, 0, 1, 1, 1), 4), ((0, 0, 2, 2), 0)):
        key = Key(tuple((token,) for token in tokens))
        slots = cache.allocate(Counts(full=len(tokens) - reused, swa=len(tokens) - reused))
        write_stamps(cache, key, slots)
        cache.insert(key, reused, slots)
        cache.flush()
        if reused:
            cache.evict(Counts(full=5))
            cache.evict_host(Counts(swa=4))
"""
"""An insert cuts a node of the host, and makes room for its copies with the lower part of it."""

NO_ROOM_AT_FIRST = """
from kvcanon.conformance import judged, write_stamps
from kvcanon.spec.types import Counts, Key
CASE = {
    "config": {
        "page_size": 1, "window_tokens": 1, "write_policy": "write_back",
        "device_slots": {"full": 4, "swa": 3}, "host_slots": {"full": 2, "swa": 2},
    },
    "actions": [],
    "drain": [],
}
with judged("sglang-kvcanon", CASE, laws=["REC-3", "EVICT-8"]) as (cache, _):
    for pages, reused in ((2, 0), (4, 2)):
        key = Key(((0,),) * pages)
        cache.evict(Counts(swa=reused // 2))
        slots = cache.allocate(Counts(full=2, swa=2))
        write_stamps(cache, key, slots)
        cache.insert(key, reused, slots)
    cache.evict(Counts(swa=1))
    cache.evict(Counts(swa=1))
"""
"""The host can free no full page for a victim before it has freed a window page for it."""

TOO_LONG_AS_ONE = """
from kvcanon.conformance import judged, write_stamps
from kvcanon.spec.types import Counts, Key
CASE = {
    "config": {
        "page_size": 1, "window_tokens": 2, "write_policy": "write_through",
        "device_slots": {"full": 6, "swa": 6}, "host_slots": {"full": 4, "swa": 6},
    },
    "actions": [],
    "drain": [],
}
with judged("sglang-kvcanon", CASE, laws=["RES-5", "RES-10", "ASYNC-2"]) as (cache, _):
    key = Key(tuple((page,) for page in range(6)))
    slots = cache.allocate(Counts(full=6, swa=6))
    write_stamps(cache, key, slots)
    done = cache.insert(key, 0, slots)
    assert (len(done.backups), done.backup_declined_pages) == (1, 2), done
    cache.flush()
    cache.evict(Counts(full=6))
"""
"""The host has room for the upper node of a prompt alone."""


REUSED_SLOT = """
from kvcanon.conformance import judged
CASE = {
    "config": {
        "window_tokens": 2,
        "device_slots": {"full": 6, "swa": 5, "mamba": 0},
        "host_slots": {"full": 6, "swa": 5, "mamba": 0},
        "write_policy": "write_through",
    },
    "actions": [
        ["serve", 0, 0, 0],
        ["poll", 0, 0, 0],
        ["serve", 0, 0, 2],
        ["branch", 0, 2, 0],
        ["poll", 0, 0, 0],
        ["branch", 0, 0, 0],
    ],
    "drain": [],
}
with judged("sglang-kvcanon", CASE, laws=["REC-3"]):
    pass
"""
"""A slot of a window page that leaves the host is that of an upper page after the same insert."""


@pytest.mark.parametrize(
    "script",
    [
        WINDOWS_ALONE,
        WINDOWS_DURING_A_COPY,
        STATE_DURING_A_COPY,
        LONG_HANDLES + STATE_DURING_A_COPY,
        STATE_DURING_A_COPY + NO_NAME_LEFT,
        DECLINED + STATE_DURING_A_COPY.replace('"RES-5", ', "") + NO_NAME_LEFT,
        STATE_OF_A_WINDOW,
        CUT_AND_EVICTED,
        NO_ROOM_AT_FIRST,
        TOO_LONG_AS_ONE,
        REUSED_SLOT,
    ],
)
def test_copies_to_the_host_keep_the_laws(script: str) -> None:
    """Each script holds: what leaves the device has a copy where there is room for one."""
    done = run_in(RELEASE, "-W", "ignore", "-c", script)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "Holds: the fault of this script does not show.\n"
