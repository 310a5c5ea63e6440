"""Storage below two tree cores under SGLang's own controller, side by side, in its environment.

Each core has a cache of SGLang's, a `file` storage of SGLang's in a folder of its own, and all the
threads of the controller. Hypothesis draws what happens: prompts that are fetched and served, also
one during the fetch of another, evictions, flushes, lost pages, storage that is detached and
attached again. After each step both must have answered the same and have stored the same.

The arguments name the cores, how many cases are drawn, and the seed. A difference ends it; with
`--shrink` Hypothesis then looks for the smallest case that has one, which takes minutes.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from array import array
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from kvcanon.lab.releases.mended.mended_core import register_mended
from kvcanon.sglang_plugin import register
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import Counts, WritePolicy
from sglang_cores import Scheduler

PAGE, TRUNKS, MOST_PAGES = 4, 3, 12
SECONDS = 30.0
POLICIES = (
    WritePolicy.WRITE_THROUGH,
    WritePolicy.WRITE_THROUGH_SELECTIVE,
    WritePolicy.WRITE_BACK,
)
SHAPES = tuple(
    CacheConfig(
        page_size=PAGE,
        window_tokens=window or None,
        device_slots=Counts(full=40, swa=40 if window else 0),
        host_slots=Counts(full=host, swa=host if window else 0),
        write_policy=policy,
    )
    for window in (0, 8)
    for host in (24, 200)
    for policy in POLICIES
)


class Stored(Scheduler):
    """A cache of SGLang's over a core, with storage below its host."""

    def __init__(self, config: CacheConfig, core: str, folder: Path) -> None:
        super().__init__(config, core)
        self.folder, self.requests = folder, 0
        self.loaded = 0
        """Tokens that the last fetch brought."""
        self.attach()

    def attach(self) -> bool:
        """Attach storage, whose pages may be there already."""
        os.environ["SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR"] = str(self.folder)
        extra = {"prefetch_threshold": PAGE, "hicache_storage_pass_prefix_keys": True}
        attached, words = self.cache.attach_storage_backend(
            storage_backend="file",
            storage_backend_extra_config_json=json.dumps(extra),
            served_model_name="tiny",
            hicache_storage_prefetch_policy="wait_complete",
        )
        assert attached, words
        return True

    def detach(self) -> bool:
        """Detach storage, as a server does once nothing is being written."""
        self.settle()
        detached, words = self.cache.detach_storage_backend()
        assert detached, words
        return True

    def settle(self) -> None:
        """Wait until all copies are made and all pages written."""
        self._until(
            lambda: (
                not (
                    self.cache.ongoing_write_through
                    or self.cache.ongoing_load_back
                    or self.cache.ongoing_backup
                )
            )
        )

    def begin(self, prompt: list[int], salt: str | None) -> tuple[Any, dict[str, object]]:
        """Ask storage for what follows the prefix of a prompt, as SGLang's scheduler does."""
        self.requests += 1
        handle = self.calls.CacheRequestHandle(f"r{self.requests}", 0)
        tokens = array("q", prompt)
        key = self.keys.RadixKey(tokens, cache_salt=salt)
        found = self.cache.match_prefix(self.calls.MatchPrefixParams(key=key))
        anchor = found.last_host_node
        matched = found.device_prefix_len + found.host_hit_length
        seen: dict[str, object] = {"matched": matched}
        if not (self.cache.is_backuped(anchor) or self.cache.is_root(anchor)):
            return None, seen | {"anchor": "not on the host"}
        seen["last hash"] = self.cache.get_last_hash_value(anchor)
        seen["hashes above"] = self.cache.get_prefix_hash_values(anchor)
        seen["hashes"] = self.cache.tree_core.get_hash_values(anchor)
        seen["namespace"] = self.cache.tree_core.prefetch_anchor_info(anchor)
        if self.cache.enable_storage:
            self.cache.prefetch_from_storage(
                handle,
                anchor,
                tokens[matched : len(tokens) - 1],
                seen["last hash"],
                seen["hashes above"],
                matched_prefix_tokens=tokens[:matched],
                cache_salt=salt,
            )
        return handle, seen

    def end(self, handle: Any) -> dict[str, object]:  # noqa: ANN401 # A handle of SGLang's.
        """Wait for a fetch; returns what of it the tree took."""
        if handle is None:
            return {}
        self._until(lambda: self.cache.check_prefetch_progress(handle))
        loaded = self.cache.pop_prefetch_loaded_span(handle)
        self.loaded = loaded[0]
        return {"loaded": loaded}

    def lose(self, at: int) -> str:
        """Lose a page of storage."""
        self.settle()
        files = sorted(self.folder.iterdir())
        if not files:
            return ""
        lost = files[at % len(files)]
        lost.unlink()
        return lost.name

    def flush(self) -> bool:
        """Empty the cache, and leave storage as it is."""
        self.settle()
        self.cache.reset()
        self.world.allocator.clear()
        return True

    def make_room(self, pages: int, *, host: bool) -> object:
        """Evict, from the host or the device."""
        self.settle()
        if host:
            return self.cache.evict_host(pages * PAGE)
        done = self.cache.evict(self.calls.EvictParams(num_tokens=pages * PAGE))
        return done.num_tokens_evicted

    def stored(self) -> list[str]:
        """The names of the pages in storage."""
        self.settle()
        return sorted(each.name for each in self.folder.iterdir())

    def room(self) -> dict[str, int]:
        """How much is free in each pool of the host."""
        entries = self.cache.cache_controller.mem_pool_host.entries
        return {str(each.name): each.host_pool.available_size() for each in entries}

    def _until(self, is_done: Any) -> None:  # noqa: ANN401 # A condition.
        until = monotonic() + SECONDS
        while True:
            self.cache.check_hicache_events()
            if is_done():
                return
            assert monotonic() < until, "it takes too long"
            sleep(0.001)


@contextmanager
def two(config: CacheConfig, cores: list[str]) -> Iterator[list[Stored]]:
    """Two caches, each with a storage of its own."""
    with ExitStack() as stack:
        sides = []
        for core in cores:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            side = Stored(config, core, folder)
            stack.callback(side.cache.detach_storage_backend)
            sides.append(side)
        yield sides


def prompt(trunk: int, pages: int, branch: int) -> list[int]:
    """A prompt that shares its beginning with all of its trunk, and ends in a branch."""
    shared = [trunk * 100 + at for at in range(MOST_PAGES * PAGE)]
    if branch:
        shared[branch * PAGE :] = [1000 + branch] * len(shared[branch * PAGE :])
    return [*shared[: pages * PAGE], 7]


PROMPTS = st.builds(
    prompt,
    st.integers(0, TRUNKS - 1),
    st.integers(1, MOST_PAGES),
    st.integers(0, 4),
)
SALTS = st.sampled_from([None, None, "tenant"])
STEPS = st.one_of(
    *[st.tuples(st.just("serve"), PROMPTS)] * 5,
    st.tuples(st.just("serve during"), PROMPTS, PROMPTS),
    st.tuples(st.just("return"), PROMPTS, PROMPTS),
    st.tuples(st.just("probe"), PROMPTS, SALTS),
    st.tuples(st.just("flush")),
    st.tuples(st.just("lose"), st.integers(0, 99)),
    st.tuples(st.just("room"), st.integers(1, 12), st.booleans()),
    st.tuples(st.just("again")),
)
COUNTS = {"cases": 0, "steps": 0, "loaded": 0, "deep": 0}
"""Cases and steps; tokens that came from storage, and fetches below more than one node."""


def taken(side: Stored, step: tuple[Any, ...]) -> dict[str, object]:
    """What a side answers to a step."""
    kind, *rest = step
    side.loaded = 0
    if kind == "flush":
        return {"flushed": side.flush()}
    if kind == "lose":
        return {"lost": side.lose(*rest)}
    if kind == "room":
        return {"evicted": side.make_room(rest[0], host=rest[1])}
    if kind == "again":
        return {"again": side.detach() and side.attach()}
    if kind == "return":
        # What is served now is found in storage later.
        side.serve(rest[1], chunk=3 * PAGE, session=None)
        side.flush()
    salt = rest[1] if kind == "probe" else None
    handle, seen = side.begin(rest[0], salt)
    if kind == "serve during":
        # What storage has done is looked at afterwards, so that both cores see it at one time.
        side.cache._drain_storage_control_queues_impl = lambda *_, **__: None
        seen["meanwhile"] = side.serve(rest[1], chunk=2 * PAGE, session=None)
        del side.cache._drain_storage_control_queues_impl
    seen |= side.end(handle)
    if kind != "probe":
        seen["served"] = side.serve(rest[0], chunk=3 * PAGE, session=None)
    return seen


def main() -> None:
    """Play as many cases as asked for."""
    register()
    register_mended()
    parallel = import_module("sglang.srt.runtime_context").get_parallel()
    ranks = dict.fromkeys(("tp_rank", "attn_tp_rank", "pp_rank"), 0)
    sizes = dict.fromkeys(("tp_size", "attn_tp_size", "pp_size"), 1)
    parallel.override_permanently(**ranks, **sizes)
    cores, cases, number = sys.argv[1:3], int(sys.argv[3]), int(sys.argv[4])

    @seed(number)
    @settings(
        max_examples=cases,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink) if "--shrink" in sys.argv else (Phase.generate,),
    )
    @given(st.sampled_from(SHAPES), st.lists(STEPS, min_size=10, max_size=24))
    def agree(config: CacheConfig, steps: list[tuple[Any, ...]]) -> None:
        COUNTS["cases"] += 1
        with two(config, cores) as sides:
            for step in steps:
                answers = [taken(side, step) for side in sides]
                assert answers[0] == answers[1], (step, answers)
                stored = [side.stored() for side in sides]
                assert stored[0] == stored[1], (step, stored)
                rooms = [side.room() for side in sides]
                assert rooms[0] == rooms[1], (step, rooms)
                for side in sides:
                    side.cache.sanity_check()
                COUNTS["steps"] += 1
                COUNTS["deep"] += bool(answers[0].get("hashes above"))
                COUNTS["loaded"] += side.loaded

    agree()
    print(json.dumps(COUNTS))  # noqa: T201 # The test reads it.


if __name__ == "__main__":
    main()
