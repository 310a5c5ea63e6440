"""Each planted fault changes what it says, on a core that is small enough to see it.

That the script finds each of them in a real server is shown by `make engine-faults`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib import import_module
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch

from kvcanon.lab.servers import core_faults
from kvcanon.lab.servers.core_faults import FAULTS, faulty_factory

PAGE = 2


@dataclass
class TokenKey:
    """A key of SGLang, as far as faults look at one."""

    token_ids: tuple[int, ...]
    extra_key: str | None = None
    is_bigram: bool = False
    limit: int | None = None
    cache_salt: str | None = None

    def __len__(self) -> int:
        return len(self.token_ids)

    def __getitem__(self, part: slice) -> TokenKey:
        return replace(self, token_ids=self.token_ids[part])

    def raw_token_ids(self) -> tuple[int, ...]:
        """The tokens."""
        return self.token_ids


@dataclass
class CallParams:
    """Arguments of a match or an insert."""

    key: TokenKey
    value: torch.Tensor | None = None
    prev_prefix_len: int = 0


class FoundPrefix(NamedTuple):
    """The result of a match."""

    device_prefix_len: int
    last_device_node: int
    last_host_node: int = 9
    best_match_node: int = 9
    host_hit_length: int = 4
    swa_host_hit_length: int = 4
    cache_actions: tuple[object, ...] = ()


@dataclass
class ScriptedCore:
    """A core that finds every prompt, at a node of its length, and keeps its calls."""

    page_size: int = PAGE
    calls: list[tuple[str, Any]] = field(default_factory=list)

    def match_prefix(self, params: CallParams) -> FoundPrefix:
        """Find the whole key."""
        self.calls.append(("match", params.key))
        return FoundPrefix(len(params.key), len(params.key))

    def begin_insert(self, params: CallParams) -> object:
        """Insert."""
        self.calls.append(("insert", params))
        return SimpleNamespace(result=SimpleNamespace(last_device_node=len(params.key)))

    def resume_insert(self) -> object:
        """Nothing is left."""
        return SimpleNamespace(result=None)

    def collect_full_device_indices(self, node: int, _until: int) -> torch.Tensor:
        """Slots in order."""
        return torch.arange(node)

    def root_node_handle(self, extra_key: str | None = None) -> object:
        """The root of a namespace."""
        return ("root", extra_key)

    def commit_load_back(self, _node: int, slots: torch.Tensor, *_rest: object) -> torch.Tensor:
        """What is put into the tree."""
        return slots

    def build_backup_spec(self, _node: int) -> tuple[torch.Tensor, dict[object, object]]:
        """What is copied."""
        return torch.arange(4), {}

    def inc_lock_ref(self, node: int) -> object:
        """Lock."""
        self.calls.append(("lock", node))
        return SimpleNamespace(to_dec_params=lambda: "receipt")

    def dec_lock_ref(self, node: int, _receipt: object) -> object:
        """Unlock."""
        self.calls.append(("unlock", node))
        return None

    def reset(self) -> None:
        """Empty the tree."""

    def take_events(self) -> list[object]:
        """Two removals and a store."""
        return [type(name, (), {})() for name in ("BlockRemoved", "BlockStored", "BlockRemoved")]


def faulty(name: str) -> ScriptedCore:
    """A core with a fault."""
    made: ScriptedCore = faulty_factory(ScriptedCore, FAULTS[name])()
    return made


def matched(core: ScriptedCore, *tokens: int, extra_key: str | None = None) -> FoundPrefix:
    """Match a prompt."""
    return core.match_prefix(CallParams(TokenKey(tokens, extra_key)))


def lengths(core: ScriptedCore) -> list[int]:
    """How long the keys were that were matched."""
    return [len(key) for name, key in core.calls if name == "match"]


def wrong_slot_after_split(core: ScriptedCore) -> bool:
    """An inserted node is right, a split one not."""
    core.begin_insert(CallParams(TokenKey((1, 2, 3, 4))))
    matched(core, 1, 2, 3, 4)
    matched(core, 1, 2, 3, 4, 5, 6)
    right = core.collect_full_device_indices(4, 0).tolist() == [0, 1, 2, 3]
    return right and core.collect_full_device_indices(6, 0).tolist() == [0, 1, 2, 3, 0, 1]


def window_refreshed_too_far(core: ScriptedCore) -> bool:
    """The end of an earlier insert is matched, too, and the path itself last."""
    core.begin_insert(CallParams(TokenKey((1, 2))))
    matched(core, 1, 2, 3, 4)
    return lengths(core) == [4, 2, 4]


def load_back_one_page_off(core: ScriptedCore) -> bool:
    """Slots are put one page off."""
    return core.commit_load_back(1, torch.arange(6), None).tolist() == [4, 5, 0, 1, 2, 3]


def backup_one_page_off(core: ScriptedCore) -> bool:
    """Slots are copied one page off."""
    return core.build_backup_spec(1)[0].tolist() == [2, 3, 0, 1]


def namespace_ignored(core: ScriptedCore) -> bool:
    """The core gets no namespace, in a match, an insert or a root."""
    matched(core, 1, 2, extra_key="tenant")
    core.begin_insert(CallParams(TokenKey((1, 2), "tenant", cache_salt="pepper")))
    key, params = (call for _, call in core.calls)
    bare = TokenKey((1, 2))
    return (key, params.key, core.root_node_handle("tenant")) == (bare, bare, ("root", None))


def first_token_compared(core: ScriptedCore) -> bool:
    """The core gets pages of their first tokens alone, in the same kind of sequence."""
    core.match_prefix(CallParams(TokenKey(array("q", (1, 2, 3)), "tenant")))  # type: ignore[arg-type]
    core.begin_insert(CallParams(TokenKey((1, 2, 3, 4), cache_salt="pepper")))
    key, params = (call for _, call in core.calls)
    wanted = TokenKey((1, 1, 3, 3), cache_salt="pepper")
    return (list(key.token_ids), key.extra_key, params.key) == ([1, 1, 3], "tenant", wanted)


def hit_one_page_short(core: ScriptedCore) -> bool:
    """The last page is not found."""
    return matched(core, 1, 2, 3, 4).device_prefix_len == 2


def insert_swaps_pages(core: ScriptedCore) -> bool:
    """The last two pages change places, and the caller's tensor stays as it was."""
    slots = torch.arange(6)
    core.begin_insert(CallParams(TokenKey((1, 2, 3, 4, 5, 6)), slots))
    swapped = core.calls[0][1].value.tolist()
    return swapped == [0, 1, 4, 5, 2, 3] and slots.tolist() == list(range(6))


def lock_forgotten(core: ScriptedCore) -> bool:
    """The lock is gone at once."""
    core.inc_lock_ref(3)
    return core.calls == [("lock", 3), ("unlock", 3)]


def recency_of_another(core: ScriptedCore) -> bool:
    """The first prompt is matched with every other."""
    matched(core, 1, 2, 3)
    matched(core, 5, 6, 7, 8)
    return lengths(core) == [3, 2, 4, 2]


def host_hit_forgotten(core: ScriptedCore) -> bool:
    """A hit ends on the device."""
    found = matched(core, 1, 2)
    return (found.host_hit_length, found.best_match_node, found.last_host_node) == (0, 2, 2)


def removals_lost(core: ScriptedCore) -> bool:
    """One removal of two is told."""
    names = [type(each).__name__ for each in core.take_events()]
    return names.count("BlockRemoved") == 1


SIGNS: dict[str, Callable[[ScriptedCore], bool]] = {
    each.__name__.replace("_", "-"): each
    for each in (
        wrong_slot_after_split,
        window_refreshed_too_far,
        load_back_one_page_off,
        backup_one_page_off,
        namespace_ignored,
        first_token_compared,
        hit_one_page_short,
        insert_swaps_pages,
        lock_forgotten,
        recency_of_another,
        host_hit_forgotten,
        removals_lost,
    )
}


@pytest.fixture
def lock_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """SGLang's module with the result of an unlock."""
    module = SimpleNamespace(DecLockRefResult=lambda delta: delta)
    monkeypatch.setattr(
        core_faults,
        "import_module",
        lambda name: module if name.startswith("sglang.") else import_module(name),
    )


@pytest.mark.usefixtures("lock_result")
@pytest.mark.parametrize("name", FAULTS)
def test_fault_shows_on_a_faulty_core_alone(name: str) -> None:
    """A sound core does not show the sign of a fault, and a faulty one does."""
    assert not SIGNS[name](ScriptedCore())
    assert SIGNS[name](faulty(name))
    assert FAULTS[name].__doc__
