"""A cache as SGLang's tree core has it, with objects that stand for SGLang's."""

from __future__ import annotations

from array import array
from typing import Any, NamedTuple

import torch
from attrs import Factory, define, field

from fast.nodes import made
from kvcanon.optimized import _core
from kvcanon.optimized.native_types import (
    NodeCuts,
    PromptInserted,
    ResultTypes,
    SlotLists,
    VictimToCopy,
)
from kvcanon.optimized.sglang.slot_table import DeviceSlots, HostSlots, SlotTable
from kvcanon.spec.types import EvictionPolicy, WritePolicy

KINDS = ("full", "swa", "mamba")


class MatchResult(NamedTuple):
    """The fields of SGLang's result, in their order."""

    device_prefix_len: int
    last_device_node: int
    last_host_node: int
    best_match_node: int
    host_hit_length: int
    swa_host_hit_length: int
    swa_branching_seqlen: int | None
    mamba_host_hit_length: int
    mamba_branching_seqlen: int | None
    cache_protected_len: int | None
    full_kv_hit_length: int
    cache_actions: list[object]
    last_visited_node_id: int | None
    full_device_match_len: int | None


class Inserted(NamedTuple):
    """The first fields of SGLang's result of an insert, in their order."""

    prefix_len: int
    total_len: int
    end: int


class InsertStep(NamedTuple):
    """The fields of SGLang's step of an insert, in their order."""

    actions: list[object]
    result: Inserted


class FreeSlots(NamedTuple):
    """The fields of SGLang's action that frees slots, in their order."""

    slots: list[torch.Tensor]
    kind: str


class StepResult(NamedTuple):
    """The fields of SGLang's step of an eviction, in their order."""

    device: SlotLists
    host: SlotLists
    tokens: dict[str, int]
    cache_actions: list[object]
    node_id: int | None
    made_progress: bool
    lost: int


RESULTS = ResultTypes(MatchResult, StepResult, Inserted, InsertStep, FreeSlots)


@define
class Key:
    """What is read of SGLang's `RadixKey`."""

    token_ids: array[int]
    extra_key: str | None = None
    cache_salt: str | None = None
    limit: int | None = None


@define
class Params:
    """What is read of SGLang's parameters of a match and of an insert."""

    key: Key
    prev_prefix_len: int = 0
    inserted_len: int = 0
    mamba_value: object = None
    priority: int | None = 0
    track_adopted_ranges: bool = True
    swa_branching_seqlen: int | None = None


@define
class Reader:
    """Answers for keys that are not plain, and keeps what it is told of cuts."""

    number: int = 0
    told: list[NodeCuts] = Factory(list)

    def prompt(self, key: Any) -> tuple[array[int], int]:  # noqa: ANN401 # A `Key`.
        """The tokens up to the limit, in the namespace that this names."""
        return key.token_ids[: key.limit], self.number

    def follow_cuts(self, cuts: NodeCuts) -> list[object]:
        """Keep the cuts; one action stands for all."""
        self.told.append(cuts)
        return ["cut"]


@define(eq=False)
class Side:
    """A cache as an engine has it."""

    page_size: int = 1
    window: int = 0
    mamba: bool = False
    slots: int = 16
    policy: WritePolicy = WritePolicy.NONE
    host_slots: int = 16
    eviction: EvictionPolicy = EvictionPolicy.LRU
    bigram: bool = False
    on_device: bool = False
    """Whether the engine's slots are read by Python code, as those of a device are."""
    nodes: _core.Nodes = field(init=False)
    engine: _core.EngineNodes = field(init=False)
    device: tuple[SlotTable, None, SlotTable | None] = field(init=False)
    host: list[SlotTable | None] = Factory(lambda: [None, None, None])
    reader: Reader = Factory(Reader)

    def __attrs_post_init__(self) -> None:
        """Make the cache and its tables."""
        _, self.nodes = made(
            page_size=self.page_size,
            window=self.window,
            mamba=self.mamba,
            slots=self.slots,
            policy=self.policy,
            host_slots=self.host_slots,
            eviction=self.eviction,
            bigram=self.bigram,
        )
        self.device = (self._table(self.page_size), None, self._table(1) if self.mamba else None)
        if self.policy is not WritePolicy.NONE:
            sizes = (self.page_size, self.page_size, 1)
            self.host = [HostSlots(self.host_slots, size) for size in sizes]
        full, swa, states = self.host
        self.engine = _core.EngineNodes(
            self.nodes, RESULTS, KINDS, self.device, (full, swa, states), 4
        )

    def _table(self, page_size: int) -> SlotTable:
        if self.on_device:
            return DeviceSlots(self.slots, page_size, "cpu", consecutive=False)
        return HostSlots(self.slots, page_size)

    def match(self, *tokens: int) -> MatchResult:
        """Match a prompt."""
        found = self.engine.match(self.reader, Params(Key(array("q", tokens))))
        assert isinstance(found, MatchResult)
        return found

    def begin(
        self,
        slots: torch.Tensor,
        *tokens: int,
        frontier: int = 0,
        **params: Any,  # noqa: ANN401 # Fields of `Params`, as SGLang names them.
    ) -> object:
        """Insert a prompt with its slots; returns what the engine is given."""
        given = Params(Key(array("q", tokens)), **params)
        return self.engine.insert(self.reader, given, slots, frontier)

    def insert(
        self,
        slots: torch.Tensor,
        *tokens: int,
        frontier: int = 0,
        **params: Any,  # noqa: ANN401 # As in `begin`.
    ) -> PromptInserted:
        """The same, where more is left to do than to free slots."""
        done = self.begin(slots, *tokens, frontier=frontier, **params)
        assert isinstance(done, PromptInserted)
        return done

    def evict(self, component: int, amount: int) -> StepResult:
        """Evict victims that need no copy."""
        step = self.engine.evict_step(component, amount)
        assert isinstance(step, StepResult)
        return step

    def to_copy(self, component: int, amount: int, *, together: bool = True) -> VictimToCopy:
        """The victim that must be copied first."""
        step = self.engine.evict_step(component, amount, together)
        assert isinstance(step, VictimToCopy)
        return step

    def slots_of(self, end: int) -> list[int]:
        """The slots of the whole path to a node."""
        found: list[int] = self.engine.slots(end, self.nodes.root()).tolist()
        return found


def listed_by_kind(slots: SlotLists) -> dict[str, list[list[int]]]:
    """Token slots as lists, in their order."""
    return {kind: [each.tolist() for each in tensors] for kind, tensors in slots.items()}
