"""Copies to the host under SGLang's controller, case by case: each script broke a law once."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import dedent, indent

import pytest

from in_peer import run_in

pytestmark = pytest.mark.nightly

RELEASE = "sglang==0.5.23"

SCRIPT = """
from kvcanon.conformance import judged, write_stamps
from kvcanon.spec.types import Counts, Key, Slots

def key_of(*tokens):
    return Key(tuple((token,) * CASE["config"].get("page_size", 1) for token in tokens))

def put(cache, tokens, reused=0, mamba=0):
    key, count = key_of(*tokens), len(tokens) - reused
    slots = cache.allocate(Counts(full=count, swa=count * HAS_WINDOW, mamba=mamba))
    write_stamps(cache, key, slots)
    return cache.insert(key, reused, slots)

CASE = {case!r}
HAS_WINDOW = "window_tokens" in CASE["config"]
with judged("sglang-kvcanon", CASE, laws={laws!r}) as (cache, _):
"""


def script(laws: str, calls: str, actions: Sequence[object] = (), **config: object) -> str:
    """A script that judges calls, after some actions, by these laws alone."""
    case = {"config": config, "actions": list(actions), "drain": []}
    head = SCRIPT.replace("{case!r}", repr(case)).replace("{laws!r}", repr(laws.split()))
    return head + indent(dedent(calls).strip(), "    ") + "\n"


WINDOWS_DURING_A_COPY = script(
    "RES-5 EVENT-1 EVENT-2",
    """
    slots = cache.allocate(Counts(full=3, swa=3))
    write_stamps(cache, key_of(1, 2, 3), slots)
    cache.free(Slots(swa=slots.swa[:2]))
    cache.insert(key_of(1, 2, 3), 0, Slots(full=slots.full, swa=slots.swa[2:]))
    put(cache, (1, 2, 4))
    cache.match(key_of(1, 5))
    cache.flush()
    cache.take_events()
    """,
    page_size=2,
    window_tokens=3,
    write_policy="write_through",
    device_slots={"full": 6, "swa": 6},
    host_slots={"full": 6, "swa": 6},
)
"""Window data comes back to the upper part of a node whose copy to the host is in flight, which is
cut again before either copy has ended."""

WINDOWS_ALONE = script(
    "EVICT-8 REC-3 DATA-1",
    """
    put(cache, (1, 2, 3, 4))
    cache.evict(Counts(swa=2))
    cache.flush()
    cache.evict_host(Counts(swa=2))
    put(cache, (1, 2, 3, 5))
    while cache.evict(Counts(full=1)).freed.full:
        cache.flush()
    """,
    page_size=2,
    window_tokens=4,
    write_policy="write_back",
    device_slots={"full": 8, "swa": 8},
    host_slots={"full": 8, "swa": 4},
)
"""Window data comes back to pages whose full data the host has, and is evicted with them."""


def state_during_a_copy(laws: str) -> str:
    """A state comes to a node whose copy to the host is in flight, and is known by that node."""
    return script(
        laws,
        """
        for tokens in ((1, 2), (1, 3), (1,)):
            put(cache, tokens, mamba=1)
        cache.flush()
        """,
        page_size=1,
        mamba=True,
        write_policy="write_through_selective",
        device_slots={"full": 6, "mamba": 3},
        host_slots={"full": 6, "mamba": 3},
    )


STATE_DURING_A_COPY = state_during_a_copy("RES-5 ASYNC-2")

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
from kvcanon.optimized.sglang import host_tier
backup_spec = host_tier.backup_spec
def declined(core, name):
    return (core.slots.full.nothing, {}) if name < 0 else backup_spec(core, name)
host_tier.backup_spec = declined
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

STATE_OF_A_WINDOW = script(
    "EVICT-8 REC-3",
    """
    put(cache, (1, 2), mamba=1)
    cache.evict(Counts(full=2))
    cache.flush()
    put(cache, (1,), mamba=1)
    put(cache, (1, 2), reused=1, mamba=1)
    cache.evict(Counts(swa=1))
    cache.flush()
    """,
    page_size=1,
    window_tokens=1,
    mamba=True,
    write_policy="write_back",
    device_slots={"full": 4, "swa": 4, "mamba": 3},
    host_slots={"full": 4, "swa": 4, "mamba": 2},
)
"""A window whose pages have a copy is evicted, and takes a state that has none with it."""

CUT_AND_EVICTED = script(
    "RES-10 EVENT-4",
    """
    for tokens, reused in (((0, 0, 1, 1), 0), ((0, 0, 1, 1, 1), 4), ((0, 0, 2, 2), 0)):
        put(cache, tokens, reused)
        cache.flush()
        if reused:
            cache.evict(Counts(full=5))
            cache.evict_host(Counts(swa=4))
    """,
    page_size=1,
    window_tokens=4,
    write_policy="write_through",
    device_slots={"full": 8, "swa": 8},
    host_slots={"full": 5, "swa": 5},
)
"""An insert cuts a node of the host, and makes room for its copies with the lower part of it."""

NO_ROOM_AT_FIRST = script(
    "REC-3 EVICT-8",
    """
    for pages, reused in ((2, 0), (4, 2)):
        cache.evict(Counts(swa=reused // 2))
        put(cache, (0,) * pages, reused)
    cache.evict(Counts(swa=1))
    cache.evict(Counts(swa=1))
    """,
    page_size=1,
    window_tokens=1,
    write_policy="write_back",
    device_slots={"full": 4, "swa": 3},
    host_slots={"full": 2, "swa": 2},
)
"""The host can free no full page for a victim before it has freed a window page for it."""

TOO_LONG_AS_ONE = script(
    "RES-5 RES-10 ASYNC-2",
    """
    done = put(cache, range(6))
    assert (len(done.backups), done.backup_declined_pages) == (1, 2), done
    cache.flush()
    cache.evict(Counts(full=6))
    """,
    page_size=1,
    window_tokens=2,
    write_policy="write_through",
    device_slots={"full": 6, "swa": 6},
    host_slots={"full": 4, "swa": 6},
)
"""The host has room for the upper node of a prompt alone."""

REUSED_SLOT = script(
    "REC-3",
    "pass",
    [
        ("serve", 0, 0, 0),
        ("poll", 0, 0, 0),
        ("serve", 0, 0, 2),
        ("branch", 0, 2, 0),
        ("poll", 0, 0, 0),
        ("branch", 0, 0, 0),
    ],
    window_tokens=2,
    device_slots={"full": 6, "swa": 5, "mamba": 0},
    host_slots={"full": 6, "swa": 5, "mamba": 0},
    write_policy="write_through",
)
"""A slot of a window page that leaves the host is that of an upper page after the same insert."""

COUNTED = """
from kvcanon.optimized.sglang import host_tier
COPIED = []
commit_backup = host_tier.commit_backup
def counted(core, *given):
    COPIED.append(len(core.copies.order.nodes))
    return commit_backup(core, *given)
host_tier.commit_backup = counted
"""
"""Put before a script: how many nodes each copy has."""

SEVERAL_HAVE_NO_ROOM = """
from sglang.srt.mem_cache.unified_cache.unified_tree_core_interface import DriveHostEvictionResult
from kvcanon.optimized.sglang import tree_core
make_room = tree_core.make_room
def for_one(core, *given):
    if len(core.copies.order.nodes) > 1:
        return DriveHostEvictionResult(), []
    return make_room(core, *given)
tree_core.make_room = for_one
"""
"""Put before a script: the host has no room for a copy of several victims, as where others of
SGLang hold slots there."""


def four_windows(copied: list[int]) -> str:
    """Four prompts leave the device for a host that has room for two."""
    return script(
        "EVICT-8 DATA-1 MATCH-1",
        f"""
        for first in (1, 3, 5, 7):
            put(cache, (first, first + 1))
        for _ in range(2):
            cache.evict(Counts(swa=4))
        assert COPIED == {copied}, COPIED
        found = [cache.match(key_of(first, first + 1)).prefix_pages for first in (1, 3, 5, 7)]
        assert found == [0, 0, 2, 2], found
        """,
        page_size=2,
        window_tokens=4,
        write_policy="write_back",
        device_slots={"full": 8, "swa": 8},
        host_slots={"full": 4, "swa": 4},
    )


STATE_ABOVE_A_LOAD = script(
    "REC-3 EVICT-8",
    """
    put(cache, (1,), mamba=1)
    put(cache, (1, 1), mamba=1)
    slots = cache.allocate(Counts(full=1, swa=1, mamba=1))
    write_stamps(cache, key_of(2), slots)
    cache.evict(Counts(swa=2))
    cache.insert(key_of(2), 0, slots)
    cache.load_back(key_of(1, 1))
    cache.evict(Counts(mamba=1))
    """,
    window_tokens=2,
    mamba=True,
    write_policy="write_back",
    device_slots={"full": 3, "swa": 3, "mamba": 3},
    host_slots={"full": 3, "swa": 3, "mamba": 2},
)
"""While a prompt is loaded, the host gives up a state that is no part of the load."""


WINDOW_BEFORE_A_COPY = script(
    "REC-3",
    """
    put(cache, (1, 2))
    cache.flush()
    cache.evict(Counts(full=2))
    slots = cache.allocate(Counts(full=5, swa=5))
    write_stamps(cache, key_of(1, 2, 3, 4, 5), slots)
    cache.free(Slots(swa=slots.swa[:3]))
    done = cache.insert(key_of(1, 2, 3, 4, 5), 0, Slots(full=slots.full, swa=slots.swa[3:]))
    assert done.backup_declined_pages == 0, done
    """,
    window_tokens=2,
    write_policy="write_through",
    device_slots={"full": 8, "swa": 8},
    host_slots={"full": 8, "swa": 2},
)
"""Two nodes are copied as one; room for the second is made of the window before the first."""


VICTIMS_TOGETHER = COUNTED + four_windows([2, 2])
VICTIMS_APART = COUNTED + SEVERAL_HAVE_NO_ROOM + four_windows([2, 1, 1])


@pytest.mark.parametrize(
    "script",
    [
        VICTIMS_TOGETHER,
        VICTIMS_APART,
        WINDOWS_ALONE,
        WINDOWS_DURING_A_COPY,
        STATE_DURING_A_COPY,
        LONG_HANDLES + STATE_DURING_A_COPY,
        STATE_DURING_A_COPY + NO_NAME_LEFT,
        DECLINED + state_during_a_copy("ASYNC-2") + NO_NAME_LEFT,
        STATE_OF_A_WINDOW,
        CUT_AND_EVICTED,
        NO_ROOM_AT_FIRST,
        TOO_LONG_AS_ONE,
        REUSED_SLOT,
        STATE_ABOVE_A_LOAD,
        WINDOW_BEFORE_A_COPY,
    ],
)
def test_copies_to_the_host_keep_the_laws(script: str) -> None:
    """Each script holds: what leaves the device has a copy where there is room for one."""
    done = run_in(RELEASE, "-W", "ignore", "-c", script)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "Holds: the fault of this script does not show.\n"
