"""The wrapper around vLLM's offloading manager sees each planted fault, and none in a sound one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from enum import Enum, auto

import pytest
from attrs import define, field

from offloading_judge import JudgedManager

CHUNKS = 4


class Found(Enum):
    """What a lookup gives, by vLLM's names."""

    HIT = auto()
    MISS = auto()
    HIT_PENDING = auto()


@define
class Spec:
    """Where blocks are."""

    block_ids: list[int]


@define
class Output:
    """What a store was given."""

    keys_to_store: list[str]
    store_spec: Spec
    evicted_keys: list[str]


@define
class HostEvent:
    """Blocks that came or left."""

    keys: list[str]
    removed: bool


@define
class PlainManager:
    """A manager as vLLM's, whose least recently stored block leaves first."""

    events: list[HostEvent] = field(factory=list)
    chunk_of: dict[str, int] = field(factory=dict)
    ready: set[str] = field(factory=set)
    read: list[str] = field(factory=list)

    def lookup(self, key: str, context: object) -> Found:
        """Whether a block is there."""
        if key not in self.chunk_of:
            return Found.MISS
        return Found.HIT if key in self.ready else Found.HIT_PENDING

    def prepare_load(self, keys: Collection[str], context: object) -> Spec:
        """Hold blocks that are read."""
        self.read += keys
        return Spec([self.chunk_of[key] for key in keys])

    def complete_load(self, keys: Collection[str], context: object) -> None:
        """Let go of them."""
        for key in keys:
            self.read.remove(key)

    def victims(self, count: int) -> list[str]:
        """The first blocks that are not in use."""
        free = [key for key in self.chunk_of if key in self.ready and key not in self.read]
        return free[: max(0, count)]

    def prepare_store(self, keys: Collection[str], context: object) -> Output | None:
        """Make room for blocks that are not there."""
        new = [key for key in keys if key not in self.chunk_of]
        short = len(new) - (CHUNKS - len(self.chunk_of))
        evicted = self.victims(short)
        if len(evicted) < short:
            return None
        for key in evicted:
            del self.chunk_of[key]
            self.ready.discard(key)
        if evicted:
            self.events.append(HostEvent(evicted, removed=True))
        chunks = self.free_chunks()[: len(new)]
        self.chunk_of |= dict(zip(new, chunks, strict=False))
        return Output(new, Spec(chunks), evicted)

    def free_chunks(self) -> list[int]:
        """Chunks that no block has."""
        return [chunk for chunk in range(CHUNKS) if chunk not in self.chunk_of.values()]

    def complete_store(self, keys: Collection[str], context: object, success: bool = True) -> None:
        """The bytes are there, or the blocks are not."""
        for key in keys:
            if success:
                self.ready.add(key)
            else:
                del self.chunk_of[key]
        if success:
            self.events.append(HostEvent(list(keys), removed=False))

    def reset_cache(self) -> None:
        """Forget all."""
        self.chunk_of.clear()
        self.ready.clear()

    def take_events(self) -> Iterator[HostEvent]:
        """The events so far."""
        yield from self.events
        self.events.clear()


def serve(manager: PlainManager) -> list[str]:
    """Store, read, evict and fail; the laws that were broken."""
    judged = JudgedManager(manager, CHUNKS)

    def store(*keys: str, success: bool = True) -> None:
        judged.prepare_store(keys, None)
        judged.complete_store(keys, None, success)
        for key in (*keys, "nowhere"):
            judged.lookup(key, None)
        list(judged.take_events())

    store("a", "b")
    judged.prepare_load(["b", "a"], None)
    judged.prepare_store(["c"], None)
    judged.lookup("c", None)
    store("d")
    store("e", success=False)
    judged.complete_store(["c"], None)
    store("f")
    judged.complete_load(["a", "b"], None)
    store("g")
    judged.reset_cache()
    store("a")
    return sorted({line.partition(":")[0] for line in judged.broken})


def test_a_sound_manager_breaks_no_law() -> None:
    """Nothing is found where nothing is wrong."""
    assert serve(PlainManager()) == []


def chunks_in_order(self: PlainManager, keys: Collection[str], context: object) -> Spec:
    """Give the chunks of a load by their numbers."""
    return Spec(sorted(PlainManager.prepare_load(self, keys, context).block_ids))


def events_twice(self: PlainManager) -> Iterator[HostEvent]:
    """Emit each store and the same again."""
    for each in PlainManager.take_events(self):
        yield from [each] if each.removed else [each, each]


PLANTED: dict[str, tuple[str, Callable[..., object]]] = {
    "MATCH-1": (  # It finds blocks before their bytes are there.
        "lookup",
        lambda self, key, context: Found.HIT if key in self.chunk_of else Found.MISS,
    ),
    "MATCH-3": ("prepare_load", chunks_in_order),
    "LOCK-4": (  # It evicts what is read.
        "victims",
        lambda self, count: [key for key in self.chunk_of if key in self.ready][: max(0, count)],
    ),
    "EVICT-2": (  # It evicts one block more than is needed.
        "victims",
        lambda self, count: PlainManager.victims(self, count + 1 if count > 0 else 0),
    ),
    "ALLOC-1": ("free_chunks", lambda self: list(range(CHUNKS))),
    "EVENT-4": (  # It evicts in silence.
        "take_events",
        lambda self: (each for each in PlainManager.take_events(self) if not each.removed),
    ),
    "EVENT-2": ("take_events", events_twice),
}
"""By the law that each breaks: the method of a sound manager that is another one."""


@pytest.mark.parametrize("law", PLANTED)
def test_each_planted_fault_breaks_its_law(law: str) -> None:
    """The law that the fault is about is among those that are found broken."""
    name, method = PLANTED[law]
    planted: type[PlainManager] = type("Planted", (PlainManager,), {name: method})
    assert law in serve(planted())
