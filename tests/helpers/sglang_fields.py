"""Which fields of SGLang's objects a tree core reads and sets, in SGLang's environment.

It plays the requests of `sglang_cores` over SGLang's Python core and over kvcanon's, and prints as
JSON: the fields of every object that passes between controller and core, which of them each core
read, which it set to something other than the default, and what kvcanon inherits of the interface.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from importlib import import_module
from random import Random
from typing import Any

from kvcanon.optimized.sglang.tree_core import KvcanonTreeCore
from kvcanon.sglang_plugin import register
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import Counts, WritePolicy
from sglang_cores import SHAPES, WINDOWED, Scheduler

CORES = ("python", "kvcanon")
CALLS = import_module("sglang.srt.mem_cache.base_prefix_cache")
INTERFACE = import_module("sglang.srt.mem_cache.unified_cache.unified_tree_core_interface")
ComponentType = INTERFACE.ComponentType
REGISTRY = import_module("sglang.srt.mem_cache.unified_cache.tree_core_registry")
TREE = INTERFACE.UnifiedTreeCoreInterface
GIVEN = (
    import_module("sglang.srt.mem_cache.cache_init_params").CacheInitParams,
    *(CALLS.MatchPrefixParams, CALLS.InsertParams, CALLS.DecLockRefParams),
)
"""What the controller gives to a core."""
ANSWERED = (
    *(CALLS.MatchResult, CALLS.InsertResult, CALLS.IncLockRefResult, CALLS.DecLockRefResult),
    *(INTERFACE.InsertStepResult, INTERFACE.EvictDeviceNextNodeResult),
    *(INTERFACE.EvictDeviceLeafResult, INTERFACE.DemoteResult, INTERFACE.DriveHostEvictionResult),
    *(INTERFACE.DropSubtreeNoHostResult, INTERFACE.DecSwaLockOnlyResult),
)
STATES_ON_HOST = tuple(
    CacheConfig(
        page_size=1,
        mamba=True,
        device_slots=Counts(full=800, mamba=6),
        host_slots=Counts(full=4000, mamba=90),
        write_policy=policy,
    )
    for policy in (WritePolicy.WRITE_THROUGH, WritePolicy.WRITE_BACK)
)
TURNS = 24
Fields = dict[str, set[str]]


def fields_of(kind: Any) -> tuple[str, ...]:  # noqa: ANN401 # A class of SGLang's.
    """The fields of a dataclass, a named tuple or a struct."""
    if dataclasses.is_dataclass(kind):
        return tuple(each.name for each in dataclasses.fields(kind))
    return tuple(getattr(kind, "_fields", None) or kind.__struct_fields__)


class Watch:
    """Notes what a core reads and sets, while it is in a call of the controller's."""

    def __init__(self) -> None:
        self.read: Fields = {kind.__name__: set() for kind in GIVEN}
        self.set: Fields = {kind.__name__: set() for kind in ANSWERED}
        self.depth = 0
        self.readers = {kind: self._reader(kind) for kind in GIVEN}

    def _reader(self, kind: Any) -> type:  # noqa: ANN401 # A class of SGLang's.
        names, noted = frozenset(fields_of(kind)), self.read[kind.__name__]

        def read(instance: object, name: str) -> object:
            if self.depth and name in names:
                noted.add(name)
            return object.__getattribute__(instance, name)

        return type(kind.__name__, (kind,), {"__getattribute__": read})

    def call(self, call: Callable[..., Any], *given: Any, **named: Any) -> Any:  # noqa: ANN401
        """Make a call of a core."""
        for each in (*given, *named.values()):
            if type(each) in self.readers:
                each.__class__ = self.readers[type(each)]
        self.depth += 1
        try:
            answer = call(*given, **named)
        finally:
            self.depth -= 1
        if not self.depth:
            self._note(answer)
        return answer

    def _note(self, answer: Any) -> None:  # noqa: ANN401 # Whatever a core answers.
        name = type(answer).__name__
        if name not in self.set:
            return
        for each in fields_of(type(answer)):
            value = getattr(answer, each)
            # The default of every field is one of these, or empty.
            if value is not None and not (
                isinstance(value, int | dict | list | tuple) and not value
            ):
                self.set[name].add(each)
        if name == "InsertStepResult" and answer.result is not None:
            self._note(answer.result)

    def around(self, core: Any) -> Any:  # noqa: ANN401 # A tree core.
        """Watch every call of a core's interface."""
        for name in TREE.__abstractmethods__:
            value = getattr(core, name)
            if callable(value):
                setattr(core, name, self._watched(value))
        return core

    def _watched(self, value: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given, **named: self.call(value, *given, **named)


def played(core: str) -> dict[str, dict[str, list[str]]]:
    """What a core read and set in all shapes."""
    watch, make = Watch(), REGISTRY._TREE_CORE_REGISTRY[core]
    REGISTRY._TREE_CORE_REGISTRY[core] = lambda *given: watch.around(watch.call(make, *given))
    for seed, config in enumerate((*SHAPES, *STATES_ON_HOST, *WINDOWED[:6])):
        play(config, core, Random(seed))
    return {
        what: {name: sorted(found) for name, found in noted.items()}
        for what, noted in (("read", watch.read), ("set", watch.set))
    }


def play(config: CacheConfig, core: str, random: Random) -> None:
    """Play chats over one core."""
    side = Scheduler(config, core)
    # States are kept on a grid of 64 tokens.
    least = 200 if config in STATES_ON_HOST else 3 * config.page_size + 5
    trunk = [random.randrange(50) for _ in range(least)]
    chats = [trunk[:] for _ in range(6)]
    for _ in range(TURNS):
        at = random.randrange(len(chats))
        chats[at] += [random.randrange(50) for _ in range(random.randrange(1, 9))]
        if len(chats[at]) > least + 15 * config.page_size + 35:
            chats[at] = trunk[:]
        side.serve(chats[at][:], chunk=config.page_size, session=random.choice([None, "s"]))
        # A prompt that leaves an earlier one where its window or its state is gone.
        if config.window_tokens:
            side.cache.evict(CALLS.EvictParams(swa_num_tokens=config.window_tokens))
        branch = chats[at][: -2 * config.page_size] + [51] * 2 * config.page_size
        side.serve(branch, chunk=2 * config.page_size, session=None)
        bring_again(side, branch)


def bring_again(side: Scheduler, prompt: list[int]) -> None:
    """Insert a prompt that is cached, and hold it without its state, then without its window."""
    cache, size = side.cache, side.config.page_size
    pages = len(prompt) // size * size
    cache.evict(CALLS.EvictParams(num_tokens=pages, swa_num_tokens=pages))
    if side._free() >= pages:
        side._insert(prompt[:pages], side._alloc(pages), 0, None)
    node = cache.match_prefix(CALLS.MatchPrefixParams(key=side._key(prompt))).last_device_node
    lock = cache.lock(node, (ComponentType.MAMBA,))
    cache.release_swa(lock)
    cache.unlock(lock)


def main() -> None:
    """Play over both cores, and print what was read and set."""
    register()
    report: dict[str, object] = {core: played(core) for core in CORES}
    report["fields"] = {kind.__name__: fields_of(kind) for kind in (*GIVEN, *ANSWERED)}
    public = [name for name in vars(TREE) if not name.startswith("_")]
    report["inherited"] = [
        name for name in public if getattr(KvcanonTreeCore, name) is getattr(TREE, name)
    ]
    report["attributes"] = sorted(TREE.__annotations__)
    print(json.dumps(report))  # noqa: T201 # The test reads it.


if __name__ == "__main__":
    main()
