"""Requests over SGLang's UnifiedRadixCache with two tree cores, side by side, in its environment.

The arguments name the cores. Each plays the same chats (a shared beginning, turns that grow, pools
too small for all) in several configurations, as SGLang's scheduler calls a cache. It prints as JSON
where they differ: in what a match found or hinted, in what an insert answered, in how much is
free, or in what a router knows from the events; and how much the requests found.
"""

from __future__ import annotations

import json
import sys
from array import array
from importlib import import_module
from random import Random
from typing import Any

from attrs import evolve

from kvcanon.conformance.engines.sglang.adapters import make_unified_world
from kvcanon.lab.releases.mended.mended_core import register_mended
from kvcanon.lab.servers.server_setup import MENDED
from kvcanon.sglang_plugin import register
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import Counts, WritePolicy

ROUNDS = 160
SHAPES = (
    CacheConfig(page_size=1, device_slots=Counts(full=160)),
    CacheConfig(page_size=16, device_slots=Counts(full=24)),
    CacheConfig(page_size=4, window_tokens=8, device_slots=Counts(full=64, swa=64)),
    CacheConfig(page_size=1, mamba=True, device_slots=Counts(full=160, mamba=40)),
    CacheConfig(
        page_size=4,
        device_slots=Counts(full=40),
        host_slots=Counts(full=400),
        write_policy=WritePolicy.WRITE_THROUGH,
    ),
)
POLICIES = (
    WritePolicy.WRITE_THROUGH,
    WritePolicy.WRITE_THROUGH_SELECTIVE,
    WritePolicy.WRITE_BACK,
)


def windowed(window: int, device: Counts, host: Counts, policy: WritePolicy) -> CacheConfig:
    """A cache with windows and a host tier."""
    return CacheConfig(
        page_size=4,
        window_tokens=window,
        device_slots=device,
        host_slots=host,
        write_policy=policy,
    )


WINDOWED = (
    *(
        windowed(window, Counts(full=64, swa=48), Counts(full=host, swa=host), policy)
        for window, host in ((8, 400), (16, 70))
        for policy in POLICIES
    ),
    windowed(16, Counts(full=40, swa=48), Counts(full=400, swa=60), WritePolicy.WRITE_THROUGH),
    windowed(12, Counts(full=48, swa=32), Counts(full=80, swa=40), WritePolicy.WRITE_BACK),
)
"""Windows with a host that has room for all, for part of it, and for few windows."""
HINTS = (
    *("device_prefix_len", "host_hit_length", "swa_host_hit_length", "mamba_host_hit_length"),
    *("full_kv_hit_length", "swa_branching_seqlen", "mamba_branching_seqlen"),
    "full_device_match_len",
)


class Scheduler:
    """What SGLang's scheduler does with a cache, for one request at a time."""

    def __init__(self, config: CacheConfig, core: str) -> None:
        self.world = make_unified_world(evolve(config, slot_bytes=2 * config.page_size), core)
        self.cache: Any = self.world.cache
        self.calls: Any = import_module("sglang.srt.mem_cache.base_prefix_cache")
        self.keys: Any = import_module("sglang.srt.mem_cache.radix_cache")
        self.config = config
        self.known: dict[str, set[int]] = {}

    def serve(self, prompt: list[int], *, chunk: int, session: str | None) -> dict[str, object]:
        """Match, load, make room, insert in two steps, release; and what all that answered."""
        found = self.cache.match_prefix(self.calls.MatchPrefixParams(key=self._key(prompt)))
        seen: dict[str, object] = {name: getattr(found, name) for name in HINTS}
        node, reached = found.last_device_node, found.device_prefix_len
        if found.host_hit_length:
            assert self.cache.load_back(found.best_match_node)
            self.cache.ready_to_load_host_cache()
            node, reached = found.best_match_node, reached + found.host_hit_length
        lock = self.cache.inc_lock_ref(node)
        seen["delta"] = lock.delta
        pages = len(prompt) // self.config.page_size * self.config.page_size
        slots = self._slots(node, reached, pages)
        if slots is None:
            self.cache.dec_lock_ref(node, lock.to_dec_params())
            return seen | {"served": False}
        for end in sorted({min(chunk, pages), pages}):
            if end <= reached:
                continue
            seen[f"insert {end}"] = self._insert(prompt[:end], slots[:end], reached, session)
            node, lock, reached = self._relock(prompt[:end], node, lock)
            slots[:end] = self.cache.path_device_indices(node)[:end]
        self.cache.dec_lock_ref(node, lock.to_dec_params())
        if self.config.host_tier:
            self.cache.check_hicache_events()
        return seen | self._after()

    def _relock(self, prompt: list[int], node: int, lock: Any) -> tuple[int, Any, int]:  # noqa: ANN401
        """Hold what was inserted instead of what was matched."""
        found = self.cache.match_prefix(self.calls.MatchPrefixParams(key=self._key(prompt)))
        self.cache.dec_lock_ref(node, lock.to_dec_params())
        held = self.cache.inc_lock_ref(found.last_device_node)
        return found.last_device_node, held, found.device_prefix_len

    def _slots(self, node: int, reached: int, pages: int) -> Any:  # noqa: ANN401 # A tensor.
        torch = import_module("torch")
        short = pages - reached
        counts = {"num_tokens": max(0, short - self._free())}
        if self.config.window_tokens:
            swa = self.world.allocator.swa_attn_allocator.available_size()
            counts["swa_num_tokens"] = max(0, short - swa)
        self.cache.evict(self.calls.EvictParams(**counts))
        own = self.cache.path_device_indices(node)[:reached]
        if self._free() < short:
            return None
        return torch.cat([own, self._alloc(short)]) if short else own.clone()

    def _alloc(self, tokens: int) -> Any:  # noqa: ANN401 # A tensor.
        allocator = self.world.allocator
        if not self.config.window_tokens:
            return allocator.alloc(tokens)
        full = allocator.full_attn_allocator.alloc(tokens)
        allocator.full_to_swa_index_mapping[full] = allocator.swa_attn_allocator.alloc(tokens)
        return full

    def _insert(self, prompt: list[int], slots: Any, owned: int, session: str | None) -> object:  # noqa: ANN401
        params = self.calls.InsertParams(
            key=self._key(prompt),
            value=slots,
            prev_prefix_len=owned,
            session_id=session,
            track_adopted_ranges=True,
            swa_branching_seqlen=len(prompt) if self.config.window_tokens else None,
        )
        states = self.world.states
        if states is not None:
            if not states.available_size():
                self.cache.evict(self.calls.EvictParams(mamba_num=1))
            params.mamba_value = states.alloc(1)
        done = self.cache.insert(params)
        if states is not None and done.mamba_exist:
            states.free(params.mamba_value)
        ranges = {str(kind): parts for kind, parts in done.adopted_ranges.items()}
        return [done.prefix_len, done.mamba_exist, done.swa_branch_inserted, ranges]

    def _after(self) -> dict[str, object]:
        sizes = [self.cache.evictable_size(), self.cache.protected_size(), self._free()]
        self._hear()
        self.cache.sanity_check()
        known = {medium: sorted(blocks) for medium, blocks in self.known.items() if blocks}
        return {"served": True, "sizes": sizes, "known": known}

    def _hear(self) -> None:
        """Let a router take the events."""
        for event in self.cache.take_events():
            kind = type(event).__name__
            if kind == "AllBlocksCleared":
                self.known.clear()
                continue
            blocks = self.known.setdefault(str(event.medium), set())
            if kind == "BlockStored":
                blocks.update(event.block_hashes)
            else:
                blocks.difference_update(event.block_hashes)

    def _free(self) -> int:
        allocator = self.world.allocator
        full: Any = getattr(allocator, "full_attn_allocator", allocator)
        return int(full.available_size())

    def _key(self, prompt: list[int]) -> object:
        return self.keys.RadixKey(array("q", prompt))


def compared(config: CacheConfig, cores: list[str], seed: int) -> dict[str, object]:
    """Where the cores differ in one configuration, and the sums of what was found."""
    random, found = Random(seed), []
    sums: dict[str, int] = {}
    sides = [Scheduler(config, core) for core in cores]
    trunk = [random.randrange(50) for _ in range(3 * config.page_size + 5)]
    chats = [trunk + [random.randrange(50) for _ in range(7)] for _ in range(6)]
    for turn in range(ROUNDS):
        at = random.randrange(len(chats))
        chats[at] += [random.randrange(50) for _ in range(random.randrange(1, 9))]
        if len(chats[at]) > 18 * config.page_size + 40:
            chats[at] = trunk[:]
        chunk = random.randrange(1, len(chats[at])) // config.page_size * config.page_size
        session = random.choice([None, None, "s"])
        answers = [side.serve(chats[at][:], chunk=chunk, session=session) for side in sides]
        for name in sorted({*answers[0], *answers[1]}):
            ours, theirs = (answer.get(name) for answer in answers)
            if ours != theirs:
                found.append(f"request {turn}: {name} is {ours} and {theirs}")
        for name, value in answers[0].items():
            if isinstance(value, int):
                sums[name] = sums.get(name, 0) + value
        if found:
            break
    return {"differences": found[:6], "sums": sums}


def main() -> None:
    """Compare two cores in every configuration, and print the differences."""
    register()
    register_mended()
    cores = sys.argv[1:3]
    shapes = WINDOWED if MENDED in cores else SHAPES
    report = [compared(config, cores, seed) for seed, config in enumerate(shapes)]
    print(json.dumps(report))  # noqa: T201 # The test reads it.


if __name__ == "__main__":
    main()
