"""What releases of SGLang before 0.5.12.post1 lack: the adapters find it by looking."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

from kvcanon.conformance.engines.sglang import cpu_stand_ins, factory, unified
from kvcanon.conformance.engines.sglang.keys import Keys
from kvcanon.conformance.engines.sglang.snapshot import Tree, _hashes
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.types import FULL, GPU, SWA, Counts, WritePolicy


def test_match_ends_at_the_last_host_node_without_another() -> None:
    """`best_match_node` decides; earlier results only have `last_host_node`."""
    both = SimpleNamespace(best_match_node="best", last_host_node="host")
    assert unified.end_of(both) == "best"
    assert unified.end_of(SimpleNamespace(last_host_node="host")) == "host"


def test_receipts_that_do_not_convert_are_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A receipt converts itself; of earlier ones the window's mark is passed on."""
    monkeypatch.setattr(unified, "named", lambda name: lambda **given: (name, given))
    later: Any = SimpleNamespace(to_dec_params=lambda: "converted")
    earlier: Any = SimpleNamespace(swa_uuid_for_lock=7)
    assert unified.returned(later) == "converted"
    assert unified.returned(earlier) == (
        "DecLockRefParams",
        {"swa_uuid_for_lock": 7},
    )


class Mapping(dict[int, int]):
    """Maps several slots at once, as a tensor does."""

    def __setitem__(self, full: Any, swa: Any) -> None:  # noqa: ANN401 # As a tensor's.
        for one, other in zip(full, swa, strict=True):
            super().__setitem__(one, other)


def test_window_slots_are_mapped_without_a_call() -> None:
    """Earlier allocators have no call to map slots; their mapping is set."""
    called: list[object] = []
    later = SimpleNamespace(set_full_to_swa_mapping=lambda full, swa: called.append((full, swa)))
    unified._map(later, [1, 2], [5, 6])
    assert called == [([1, 2], [5, 6])]
    earlier = SimpleNamespace(full_to_swa_index_mapping=Mapping())
    unified._map(earlier, [1, 2], [5, 6])
    assert earlier.full_to_swa_index_mapping == {1: 5, 2: 6}


def test_nodes_without_hashes_have_none() -> None:
    """A node that has no field for hashes shows none, as one whose hashes are not computed."""
    assert _hashes(cast("Any", SimpleNamespace(hash_value=["ab"]))) == (b"\xab",)
    assert _hashes(cast("Any", SimpleNamespace(hash_value=None))) is None
    assert _hashes(cast("Any", SimpleNamespace())) is None


@pytest.mark.parametrize("links", [{"_pt": 1, "component_type": 0}, {"component_type": 1}])
def test_order_follows_the_links_of_the_list(links: dict[str, int]) -> None:
    """A list's own links are at its index; earlier lists have that of their component."""
    head, first, last = (SimpleNamespace(id=name) for name in ("head", "first", "last"))
    chain = SimpleNamespace(head=head, tail=SimpleNamespace(lru_prev=[None, last]), **links)
    chain.cache = {"first": first, "last": last}
    last.lru_prev, first.lru_prev = [None, first], [None, head]
    core = SimpleNamespace(lru_lists={"swa": chain})
    tree = Tree(core, Keys(1, "q"), {SWA: "swa"}, {})
    assert cast("list[object]", tree.order(SWA, GPU)) == ["last", "first"]


def test_components_have_names_without_their_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `ComponentType` components have its names, as text."""
    monkeypatch.setattr(factory, "has", lambda name: name != "ComponentType")
    config = CacheConfig(window_tokens=1, device_slots=Counts(full=2, swa=2))
    assert factory.kinds_of(config) == {FULL: "FULL", SWA: "SWA"}


def test_cache_without_a_host_tier_refuses_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A class without a host tier refuses a configuration with one, and says which class."""
    monkeypatch.setattr(factory, "prepare", lambda: None)
    monkeypatch.setattr(factory, "_server_args", lambda _: None)
    monkeypatch.setattr(factory, "_requests", lambda _: (None, None))
    monkeypatch.setattr(factory, "_device_pools", lambda *_: (None, {}))
    monkeypatch.setattr(factory, "kinds_of", lambda _: {})
    monkeypatch.setattr(factory, "named", lambda _: lambda *_, **__: SimpleNamespace())
    config = CacheConfig(
        device_slots=Counts(full=1),
        host_slots=Counts(full=2),
        write_policy=WritePolicy.WRITE_THROUGH,
    )
    with pytest.raises(BadArgument, match="asks for a host tier; EarlyCache has none here"):
        factory.make_world(config, "EarlyCache", {})


def test_no_memory_is_kept_free_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Host pools of a few bytes do not need ten gigabytes of free memory."""
    pools = ModuleType("sglang.srt.mem_cache.memory_pool_host")
    setattr(pools, cpu_stand_ins.RESERVE, 10 * 1024**3)
    kernels = ModuleType("sgl_kernel.kvcacheio")
    for name in cpu_stand_ins.COPIES:
        setattr(kernels, name, lambda: None)
    torch: Any = ModuleType("torch")
    torch.set_num_threads = lambda _: None
    for module in (pools, kernels, torch):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    for package in ("sglang", "sglang.srt", "sglang.srt.mem_cache", "sgl_kernel"):
        monkeypatch.setitem(sys.modules, package, ModuleType(package))
    cpu_stand_ins.prepare.__wrapped__()
    assert getattr(pools, cpu_stand_ins.RESERVE) == 0
