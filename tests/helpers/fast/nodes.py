"""Native cores without their Python side, and such whose caller copies, reached by nodes."""

from __future__ import annotations

from array import array

from kvcanon.optimized import _core
from kvcanon.optimized.codes import EVICTION_POLICIES, WRITE_POLICIES
from kvcanon.optimized.native_types import RowsByComponent
from kvcanon.spec.types import EvictionPolicy, WritePolicy

FULL, SWA, MAMBA = range(3)
GPU, CPU = range(2)


def bare_core(**others: object) -> _core.CacheCore:
    """A core of four slots with the default namespace, or with other arguments."""
    arguments: dict[str, object] = {
        "page_size": 1,
        "unit_words": 1,
        "window_tokens": 0,
        "mamba": False,
        "device_slots": (4, 0, 0),
        "host_slots": (0, 0, 0),
        "write_policy": 0,
        "eviction_policy": EVICTION_POLICIES.index(EvictionPolicy.LRU),
        "load_back_threshold_pages": 0,
        "events": True,
        "engine": None,
    }
    core = _core.CacheCore(**{**arguments, **others})  # type: ignore[arg-type]
    assert core._add_namespace(b"", b"") == (0, [])
    return core


MADE: list[_core.CacheCore] = []
"""What a test made; its redundant state agrees in the end, by a fixture of conftest.py."""


def made(
    *,
    page_size: int = 1,
    window: int = 0,
    mamba: bool = False,
    slots: int = 16,
    host_slots: int | None = None,
    policy: WritePolicy = WritePolicy.NONE,
    eviction: EvictionPolicy = EvictionPolicy.LRU,
    bigram: bool = False,
) -> tuple[_core.CacheCore, _core.Nodes]:
    """A cache whose caller copies, and its nodes; by default the host has as many slots."""

    def sizes(each: int) -> tuple[int, int, int]:
        return each, each if window else 0, each if mamba else 0

    on_host = slots if host_slots is None else host_slots
    core = bare_core(
        page_size=page_size,
        unit_words=2 if bigram else 1,
        window_tokens=window,
        mamba=mamba,
        device_slots=sizes(slots),
        host_slots=(0, 0, 0) if policy is WritePolicy.NONE else sizes(on_host),
        write_policy=WRITE_POLICIES.index(policy),
        eviction_policy=EVICTION_POLICIES.index(eviction),
        caller_copies=True,
    )
    MADE.append(core)
    return core, _core.Nodes(core)


def prompt(*tokens: int) -> array[int]:
    """Tokens as SGLang has them: 64-bit numbers."""
    return array("q", tokens)


def listed(freed: RowsByComponent) -> list[list[int] | None]:
    """The slots that came free, as lists by component."""
    return [None if slots is None else slots.tolist() for slots in freed]


def end_of(nodes: _core.Nodes, *tokens: int) -> int:
    """Insert a prompt; return the node in which it ends."""
    return nodes.insert(prompt(*tokens)).end
