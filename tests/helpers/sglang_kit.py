"""SGLang's own test kit over a tree core, as a script for SGLang's environment.

It plays steps over the fixtures that SGLang's wheel has, in each of its configurations, and prints
as JSON what each step of each configuration came to: "held", or the reason why it was skipped, or
what went wrong. The first argument names the tree core: `kvcanon`, or SGLang's `python`; the second
the device of the pools, `cpu` or `cuda`.

Copies to the host are those of the stand-in for `sgl_kernel`, on either.
"""

from __future__ import annotations

import json
import sys
import traceback
import unittest
from array import array
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

from kvcanon.conformance.engines.sglang.cpu_stand_ins import prepare
from kvcanon.sglang_plugin import register
from kvcanon.sglang_release import NAME

FUZZ_SEEDS = 12


class _Nothing(ModuleType):
    """A package that SGLang's test utilities import and these steps never use."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


def _import_kit() -> tuple[Any, ...]:
    prepare()
    sys.modules.setdefault("datasets", _Nothing("datasets"))
    from sglang.test.kits.unified_radix_cache import config, fixtures, insert_walk, mixins

    return config, fixtures, insert_walk, mixins


def _use(core: str, device: str, fixtures: Any, mixins: Any) -> None:  # noqa: ANN401 # SGLang's modules.
    """Let the kit build caches with a core, on a device."""
    fixtures.get_device = lambda *_: device
    fixtures.TREE_CORE_TEST_BACKEND = core
    if core == NAME:
        from sglang.srt.mem_cache.unified_cache import tree_core_registry

        from kvcanon.optimized.sglang.start_checks import refuse_what_is_not_offered
        from sglang_inspector import KvcanonInspector

        def make(params: object, components: dict[Any, object]) -> KvcanonInspector:
            refuse_what_is_not_offered(params)
            return KvcanonInspector(params, components)

        register()
        tree_core_registry._TREE_CORE_REGISTRY[NAME] = make
    theirs = mixins.ServerArgs

    def server_args(**given: object) -> object:
        if "hicache_io_backend" in given:
            # Pages of states are copied as a whole; everything else by layer.
            given |= {"hicache_io_backend": "direct", "hicache_mem_layout": _layout["is"]}
        return theirs(**given)

    mixins.ServerArgs = server_args


_layout = {"is": "layer_first"}


class Steps:
    """The steps. Each makes a cache of one configuration, and asserts."""

    def __init__(self, cfg: Any, kit: tuple[Any, ...]) -> None:  # noqa: ANN401 # SGLang's.
        config, self.fixtures, self.insert_walk, mixins = kit
        self.cfg, self.config = cfg, config
        self.kinds = config.ComponentType
        self.case = type("Case", (mixins.UnifiedRadixCacheFixtures, unittest.TestCase), {})()
        self.case.cfg = cfg
        self.cache, self.allocator, self.requests = self.fixtures.build_fixture(cfg)

    def prompt_is_found(self) -> None:
        """A prompt is matched as a whole, in the slots that were handed over."""
        prompt = self.case._make_seq(1, 4)
        slots = self._insert(prompt)
        match = self._match([*prompt, 9999])
        assert match.device_prefix_len == len(prompt)
        assert self._path(match.last_device_node).tolist() == slots.tolist()
        ends = self.case._path_chain(self.cache, match.last_device_node)
        tokens = [t for node in ends for t in self.fixtures.node_token_ids(self.cache, node)]
        assert tokens == prompt

    def bigrams_are_matched(self) -> None:
        """With EAGLE n + 1 tokens are n bigrams, and a page of these is a page."""
        if self.cfg.has_mamba:
            raise unittest.SkipTest("SGLang has no bigrams where there are states")
        cfg = replace(self.cfg, is_eagle=True)
        self.cache, self.allocator, self.requests = self.fixtures.build_fixture(cfg)
        prompt = self.case._make_seq(1, 3)
        size = self.cfg.page_size
        whole = (len(prompt) - 1) // size * size
        slots = self._insert(prompt)
        found = self._match([*prompt[:-1], 9999])
        last = whole if whole < len(prompt) - 1 else whole - size
        assert self._match(prompt).device_prefix_len == whole
        assert found.device_prefix_len == last
        assert self._path(found.last_device_node).tolist() == slots[:last].tolist()

    def branches_share_their_beginning(self) -> None:
        """Two prompts that begin alike share nodes, and each has its own slots after them."""
        size = self.cfg.page_size
        first, second = self.case._make_seq(1, 4), self.case._make_seq(1, 2)
        second += self.case._make_seq(5000, 2)
        one, two = self._insert(first), self._insert(second)
        shared = 2 * size
        found = self._match(second)
        assert self._path(found.last_device_node).tolist() == [
            *one[:shared].tolist(),
            *two[shared:].tolist(),
        ]
        root = self.cache.root_node_handle()
        (trunk,) = self.fixtures.node_children(self.cache, root)
        assert self.fixtures.node_key_length(self.cache, trunk) <= shared

    def duplicates_come_back(self) -> None:
        """Slots of a prompt that is cached come free again."""
        prompt = self.case._make_seq(1, 3)
        self._insert(prompt)
        before = self.allocator.available_size()
        self._insert(prompt)
        assert self.allocator.available_size() == before

    def all_can_be_evicted(self) -> None:
        """An eviction of everything leaves an empty tree and full pools."""
        free = self.allocator.available_size()
        for start in (1, 2000, 4000):
            self._insert(self.case._make_seq(start, 3))
        self._evict_all()
        assert self.allocator.available_size() == free
        assert self.cache.evictable_size() == self.cache.protected_size() == 0
        assert self.cache.total_size() == (0, 0)

    def a_lock_protects_its_path(self) -> None:
        """What is locked stays, is counted as protected, and leaves after the release."""
        prompt = self.case._make_seq(1, 3)
        self._insert(prompt)
        node = self._match(prompt).last_device_node
        receipt = self.cache.inc_lock_ref(node)
        assert receipt.delta == len(prompt)
        for kind in self.cache.tree_components:
            assert self.fixtures.node_device_lock_ref(self.cache, node, kind) == 1, kind
        self._evict_all()
        assert self._match(prompt).device_prefix_len == len(prompt)
        assert self.cache.protected_size() == len(prompt)
        self.cache.dec_lock_ref(node, receipt.to_dec_params())
        assert self.cache.protected_size() == 0
        self._evict_all()
        assert self._match(prompt).device_prefix_len == 0

    def a_receipt_is_for_its_node(self) -> None:
        """A receipt does not release another node's lock."""
        first, second = self.case._make_seq(1, 2), self.case._make_seq(5000, 2)
        self._insert(first)
        self._insert(second)
        node, other = (self._match(each).last_device_node for each in (first, second))
        receipt = self.cache.inc_lock_ref(node).to_dec_params()
        refusal = ""
        try:
            self.cache.dec_lock_ref(other, receipt)
        except AssertionError as error:
            refusal = str(error)
        assert "lock receipt anchored on node" in refusal
        self.cache.dec_lock_ref(node, receipt)

    def a_lost_window_is_healed(self) -> None:
        """A prompt whose window data is gone is found again after an insert that brings it.

        It has the slots of that insert then, and those that it had are free.
        """
        prompt, _ = self._lose_window()
        free = self.allocator.full_attn_allocator.available_size()
        brought = self._insert(prompt)
        found = self._match(prompt)
        assert found.device_prefix_len == len(prompt)
        assert self._path(found.last_device_node).tolist() == brought.tolist()
        assert self.allocator.full_attn_allocator.available_size() == free
        self._evict_all()

    def a_locked_node_is_healed_in_its_slots(self) -> None:
        """Where a lock holds full data without window data, an insert brings the latter alone."""
        prompt, slots = self._lose_window()
        (node,) = self.fixtures.node_children(self.cache, self.cache.root_node_handle())
        receipt = self.cache.inc_lock_ref(node)
        windows = self.allocator.full_to_swa_index_mapping
        brought = self.case._alloc(self.allocator, len(prompt))
        expected = windows[brought].tolist()
        self._insert_slots(prompt, brought)
        assert self._path(node).tolist() == slots.tolist()
        assert windows[slots].tolist() == expected
        assert not windows[brought].any()
        self.cache.dec_lock_ref(node, receipt.to_dec_params())
        self._evict_all()

    def _lose_window(self) -> tuple[list[int], Any]:
        """Insert a prompt whose window slots are freed; returns it, and its full slots."""
        if not self.cfg.has_swa or self.cfg.has_mamba:
            raise unittest.SkipTest("has no window, or a state that every insert must bring")
        size = self.cfg.page_size
        pages = 2 + -(-self.cfg.sliding_window_size // size)
        prompt = self.case._make_seq(1, pages)
        slots = self.case._alloc(self.allocator, len(prompt))
        self.allocator.free_swa(slots)
        self._insert_slots(prompt, slots, frontier=len(prompt))
        assert self._match(prompt).device_prefix_len == 0
        return prompt, slots

    def windows_leave_alone(self) -> None:
        """An eviction of window data frees it, and leaves full data that others need."""
        if not self.cfg.has_swa:
            raise unittest.SkipTest("has no window")
        trunk = self.case._make_seq(1, 2 + -(-self.cfg.sliding_window_size // self.cfg.page_size))
        self._insert(trunk)
        self._insert(trunk + self.case._make_seq(7000, 2))
        before = self.cache.swa_evictable_size()
        params = self.fixtures.MatchPrefixParams.__module__
        evict = sys.modules[params].EvictParams
        freed = self.cache.evict(evict(swa_num_tokens=1)).swa_num_tokens_evicted
        assert freed > 0
        assert self.cache.swa_evictable_size() == before - freed

    def copies_to_the_host_come_back(self) -> None:
        """A prompt leaves the device, is found on the host, and its bytes are loaded back."""
        if not self.config.supports_hicache(self.cfg):
            raise unittest.SkipTest("SGLang's fixture has no host tier for windows with states")
        _layout["is"] = "page_first_direct" if self.cfg.has_mamba else "layer_first"
        try:
            self.case._init_hicache(self.cache)
            self._back_up_and_load()
        finally:
            self.case.doCleanups()

    def _back_up_and_load(self) -> None:
        prompt = self.case._make_seq(1, 3)
        slots = self._insert(prompt)
        self.case._fill_full_kv(self.allocator, slots, 3)
        node = self._match(prompt).last_device_node
        self.case._backup_node(self.cache, node)
        self._evict_all()
        found = self._match(prompt)
        assert (found.device_prefix_len, found.host_hit_length) == (0, len(prompt))
        self.case._load_back_node(self.cache, found.best_match_node)
        loaded = self._match(prompt)
        assert loaded.device_prefix_len == len(prompt)
        keys, values = self.case._snapshot_full_kv(
            self.allocator, self._path(loaded.last_device_node)
        )
        assert (keys == 3).all()
        assert (values == 4).all()

    def random_locks_stay_sound(self) -> None:
        """SGLang's fuzz of inserts, locks, releases and evictions, with its audit after each."""
        if not self.cfg.has_swa or self.cfg.page_size != 1:
            raise unittest.SkipTest("SGLang's fuzz draws windows that end inside a page")
        fuzz = type("Fuzz", (self.insert_walk.SegmentLockFuzzFixtures, unittest.TestCase), {})()
        # A request of the fuzz keeps its state, and the pools of the kit are small.
        more = {"max_num_reqs": 256, "mamba_cache_size": 400} if self.cfg.has_mamba else {}
        fuzz.cfg = replace(self.cfg, **more)
        for seed in range(FUZZ_SEEDS):
            fuzz._run_seed(seed)

    # Helpers.

    def _insert(self, prompt: list[int]) -> Any:  # noqa: ANN401 # A tensor.
        slots = self.case._alloc(self.allocator, len(prompt))
        self._insert_slots(prompt, slots)
        return slots

    def _insert_slots(self, prompt: list[int], slots: object, frontier: int = 0) -> None:
        params = self.fixtures.MatchPrefixParams.__module__
        known = sys.modules[params]
        key = self.fixtures.RadixKey(array("q", prompt))
        evicted = {self.kinds.SWA: frontier} if frontier else {}
        given = known.InsertParams(key=key, value=slots, component_evicted_seqlens=evicted)
        if self.cfg.has_mamba:
            request = self.case._make_req(self.requests)
            given.mamba_value = request.kv.mamba_pool_idx.unsqueeze(0)
        self.cache.insert(given)

    def _match(self, prompt: list[int]) -> Any:  # noqa: ANN401 # SGLang's.
        return self.fixtures.match_prefix(self.cache, prompt)

    def _path(self, node: int) -> Any:  # noqa: ANN401 # A tensor.
        return self.cache.path_device_indices(node)

    def _evict_all(self) -> None:
        known = sys.modules[self.fixtures.MatchPrefixParams.__module__]
        most = 1 << 20
        self.cache.evict(
            known.EvictParams(
                num_tokens=most,
                swa_num_tokens=most if self.cfg.has_swa else 0,
                mamba_num=most if self.cfg.has_mamba else 0,
            )
        )


def _played(step: Callable[[Steps], None], cfg: object, kit: tuple[Any, ...]) -> str:
    """What a step of a configuration came to."""
    try:
        steps = Steps(cfg, kit)
        step(steps)
        steps.cache.sanity_check()
    except unittest.SkipTest as reason:
        return f"skipped: {reason}"
    except Exception:  # noqa: BLE001 # Whatever went wrong is reported.
        return traceback.format_exc()
    return "held"


def main() -> None:
    """Play every step in every configuration, and print what it came to."""
    kit = _import_kit()
    config, fixtures, _, mixins = kit
    core, device = sys.argv[1:]
    _use(core, device, fixtures, mixins)
    names = [name for name in vars(Steps) if not name.startswith("_")]
    report = {
        cfg.label: {name: _played(getattr(Steps, name), cfg, kit) for name in names}
        for cfg in config.CONFIGS
    }
    print(json.dumps(report))  # noqa: T201 # The test reads it.


if __name__ == "__main__":
    main()
