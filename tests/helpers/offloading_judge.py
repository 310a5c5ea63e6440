"""Holds vLLM's offloading manager to the laws of a host tier, while an engine serves with it.

The wrapper passes every call on, keeps a plain model of what is on the host, and compares. It knows
keys, chunks (the slots of the host) and events, and needs nothing of vLLM: tests give it managers
with planted faults.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from attrs import define, field


@define
class OnHost:
    """A block that the manager has placed."""

    chunk: int
    is_ready: bool = False
    """Whether its bytes are there."""
    readers: int = 0


@define
class JudgedManager:
    """A manager, and the laws that it broke."""

    manager: Any
    chunks: int
    broken: list[str] = field(factory=list)
    """A line for each breach: the law, and what happened."""
    calls: int = 0
    _held: dict[Any, OnHost] = field(factory=dict)
    _told: set[Any] = field(factory=set)
    """What is on the host, by the events that were taken."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # Of calls that are not judged.
        return getattr(self.manager, name)

    def lookup(self, key: Any, context: Any) -> Any:  # noqa: ANN401
        """MATCH-1: a block is found exactly if its bytes are there."""
        self.calls += 1
        found = self.manager.lookup(key, context)
        held = self._held.get(key)
        wanted = "MISS" if held is None else "HIT" if held.is_ready else "HIT_PENDING"
        if found.name != wanted:
            self._breaks("MATCH-1", f"a lookup gave {found.name}, and {wanted} was right")
        return found

    def prepare_load(self, keys: Collection[Any], context: Any) -> Any:  # noqa: ANN401
        """MATCH-3: a load reads each block from its own chunk, in order."""
        self.calls += 1
        keys = list(keys)
        source = self.manager.prepare_load(keys, context)
        wanted = [self._held[key].chunk if key in self._held else None for key in keys]
        if list(source.block_ids) != wanted:
            given = list(map(int, source.block_ids))
            self._breaks("MATCH-3", f"a load reads chunks {given}, its blocks are in {wanted}")
        for key in keys:
            if key in self._held:
                self._held[key].readers += 1
        return source

    def complete_load(self, keys: Collection[Any], context: Any) -> None:  # noqa: ANN401
        """The bytes were read."""
        self.calls += 1
        keys = list(keys)
        self.manager.complete_load(keys, context)
        for key in keys:
            if key in self._held:
                self._held[key].readers -= 1

    def prepare_store(self, keys: Collection[Any], context: Any) -> Any:  # noqa: ANN401
        """Judge the victims and the chunks of a store."""
        self.calls += 1
        free = self.chunks - len(self._held)
        output = self.manager.prepare_store(list(keys), context)
        if output is None:
            return None
        new, evicted = list(output.keys_to_store), list(output.evicted_keys)
        for key in evicted:
            self._evict(key)
        if len(evicted) > max(0, len(new) - free):
            self._breaks("EVICT-2", f"{len(evicted)} were evicted for {len(new)} with {free} free")
        given = list(map(int, output.store_spec.block_ids))
        if len(given) != len(new):
            self._breaks("ALLOC-5", f"{len(given)} chunks were given for {len(new)} blocks")
        owners = {held.chunk for held in self._held.values()}
        for key, chunk in zip(new, given, strict=False):
            if chunk in owners:
                self._breaks("ALLOC-1", f"chunk {chunk} was given to a second block")
            if not 0 <= chunk < self.chunks:
                self._breaks("RES-6", f"chunk {chunk} is not among {self.chunks}")
            owners.add(chunk)
            self._held[key] = OnHost(chunk)
        return output

    def complete_store(
        self,
        keys: Collection[Any],
        context: Any,  # noqa: ANN401
        success: bool = True,  # As vLLM calls it.
    ) -> None:
        """The bytes were written, or were not."""
        self.calls += 1
        keys = list(keys)
        self.manager.complete_store(keys, context, success)
        for key in keys:
            held = self._held.get(key)
            if held is not None and success:
                held.is_ready = True
            elif held is not None and not held.is_ready:
                del self._held[key]

    def reset_cache(self) -> None:
        """Forget everything."""
        self.calls += 1
        self.manager.reset_cache()
        self._held.clear()
        self._told.clear()

    def take_events(self) -> Iterator[Any]:
        """EVENT-2 and EVENT-4: by the events, exactly what can be read is there."""
        self.calls += 1
        events = list(self.manager.take_events())
        for event in events:
            keys = set(event.keys)
            if event.removed and not keys <= self._told:
                self._breaks("EVENT-2", "a block was removed that was never stored")
            if not event.removed and keys & self._told:
                self._breaks("EVENT-2", "a block was stored where it was already")
            self._told = self._told - keys if event.removed else self._told | keys
        if getattr(self.manager, "events", None) is not None:
            ready = {key for key, held in self._held.items() if held.is_ready}
            if ready != self._told:
                self._breaks(
                    "EVENT-4", f"{len(ready)} blocks can be read, {len(self._told)} by the events"
                )
        return iter(events)

    def _evict(self, key: Any) -> None:  # noqa: ANN401
        held = self._held.pop(key, None)
        if held is None:
            self._breaks("EVICT-6", "a block was evicted that was not there")
        elif held.readers:
            self._breaks("LOCK-4", f"chunk {held.chunk} was evicted while it was read")
        elif not held.is_ready:
            self._breaks("LOCK-4", f"chunk {held.chunk} was evicted while it was written")

    def _breaks(self, law: str, what: str) -> None:
        self.broken.append(f"{law}: {what}")
