"""The data that a load must copy to the device, and the free slots that it finds there.

A load needs as many slots of each pool as it copies data into, not as many as its key has pages.
"""

from __future__ import annotations

from attrs import frozen

from kvcanon.spec.operations import LoadBack, LoadDecision, LoadedBack
from kvcanon.spec.oracle.window import window_start
from kvcanon.spec.snapshot import NO_POOL, Snapshot
from kvcanon.spec.types import FULL, GPU, MAMBA, SWA, Component, Counts, Key
from kvcanon.spec.views import Step, path_of


@frozen
class Missing:
    """The pages, by index in the key, whose data is on the host only and a load must copy."""

    full: tuple[int, ...]
    swa: tuple[int, ...]
    mamba: tuple[int, ...]

    def __getitem__(self, component: Component) -> tuple[int, ...]:
        return {FULL: self.full, SWA: self.swa, MAMBA: self.mamba}[component]

    def counts(self) -> Counts:
        """The slots that a load takes."""
        return Counts(len(self.full), len(self.swa), len(self.mamba))


@frozen
class Load:
    """A load-back that was not refused."""

    operation: LoadBack
    outcome: LoadedBack
    missing: Missing

    @property
    def key(self) -> Key:
        """The key to load."""
        return self.operation.key

    @property
    def may_evict(self) -> bool:
        """Whether the load may evict to get free slots."""
        return self.outcome.decision in (LoadDecision.ENQUEUED, LoadDecision.NO_ROOM)


def load_of(step: Step) -> Load | None:
    """The load of a step; None if the step is no load, or was refused."""
    operation, outcome = step.operation, step.outcome
    if not isinstance(operation, LoadBack) or not isinstance(outcome, LoadedBack):
        return None
    return Load(operation, outcome, missing_of(step.before, operation.key))


def missing_of(state: Snapshot, key: Key) -> Missing:
    """The data that a load of a key must copy.

    That is full data of all pages, window data of the window (of whole nodes, if locks take whole
    nodes) and the mamba state at the end. Data with a device slot, also one still loading, is not
    missing.
    """
    full: list[int] = []
    swa: list[int] = []
    mamba: list[int] = []
    window = window_begin(state, key)
    start = 0
    for node, shared in path_of(state, key):
        end = start + shared
        if node.full.device is None:
            full.extend(range(start, end))
        if node.swa.device is None and node.swa.host is not None and end > window:
            exact = state.profile.window_lock_exact
            swa.extend(range(max(start, window) if exact else start, end))
        at_end = end == len(key) and shared == len(node.pages)
        if at_end and node.mamba.device is None and node.mamba.host is not None:
            mamba.append(end - 1)
        start = end
    return Missing(tuple(full), tuple(swa), tuple(mamba))


def window_begin(state: Snapshot, key: Key) -> int:
    """The first page of the window at the end of a key; the end itself without a window."""
    if state.config.window_tokens is None:
        return len(key)
    return window_start(len(key), state.config.window_tokens, state.config.page_size)


def free_on_device(state: Snapshot) -> Counts:
    """Free device slots of each pool."""
    return Counts(*[len(state.pools.get((c, GPU), NO_POOL).free) for c in (FULL, SWA, MAMBA)])
