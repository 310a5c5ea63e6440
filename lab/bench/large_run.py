"""A large run that is made by hand, to measure the page: no cache plays it.

Its tree has a fan of prompts below the root, branches below these, and one long chain. Each step
evicts the least recent leaf, inserts another one somewhere, and uses the path to it.
"""

from __future__ import annotations

from random import Random

from kvcanon.conformance.show.rows import PARENT, Delta, Row, StateRows
from kvcanon.conformance.show.shown_run import ShownRun, ShownStep, config_facts
from kvcanon.conformance.show.step_packer import StepPacker
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import Counts, NodeId

ROOT = 0
PAGE = 16
FAN = 1_000
CHAIN = 5_000
POOL = "full GPU"
TOKENS = 32_000


class LargeRun:
    """Makes the tree and its steps from a seed."""

    def __init__(self, nodes: int, seed: int = 0) -> None:
        self._random = Random(seed)
        self._nodes = nodes
        self._next_id = ROOT
        self._now = 0
        self._children: dict[NodeId, int] = {}
        self._order: list[NodeId] = []
        self._ids: list[NodeId] = []

    def record(self, steps: int) -> ShownRun:
        """Make a run of so many steps."""
        config = CacheConfig(page_size=PAGE, device_slots=Counts(full=self._nodes + 1))
        rows: dict[NodeId, Row | None] = {ROOT: self._row(-1)}
        for _ in range(self._nodes):
            parent = self._parent()
            node_id = self._grown(parent)
            rows[node_id] = self._row(parent)
        packer = StepPacker(None, first=lambda state: self._fill(state, rows))
        for number in range(1, steps + 1):
            delta, words = self._step(packer.now)
            step = ShownStep(number // 8, number, words, "1 page present, took 1 full")
            packer.add_delta(step, delta)
        return ShownRun(
            title=f"A made run of {steps:,} steps and {self._nodes:,} nodes",
            facts=config_facts(config),
            config=config,
            group_word="request",
            charts=packer.charts(),
            steps=steps,
            parts=packer.parts(),
        )

    def _fill(self, state: StateRows, rows: dict[NodeId, Row | None]) -> None:
        state.change(rows, root=ROOT, pools={POOL: self._pool()})
        self._order = [node_id for node_id in self._ids if not self._children.get(node_id)]
        state.recency = {POOL: self._order}  # type: ignore[dict-item]  # It grows in place.

    def _parent(self) -> NodeId:
        grown = len(self._ids)
        if grown < FAN:
            return ROOT
        chain_end = FAN + min(CHAIN, self._nodes // 2)
        if grown < chain_end:
            return self._ids[-1]
        at = self._random.randrange(grown)
        return self._ids[at if at >= chain_end else at % FAN]

    def _grown(self, parent: NodeId) -> NodeId:
        self._next_id += 1
        self._ids.append(self._next_id)
        self._children[parent] = self._children.get(parent, 0) + 1
        return self._next_id

    def _row(self, parent: NodeId) -> Row:
        tokens = " ".join(str(self._random.randrange(TOKENS)) for _ in range(PAGE))
        slot = str(self._next_id % (self._nodes + 1))
        full: Row = [0 if parent < 0 else slot, 0, 0, 0, 0]
        return [parent, 0, "" if parent < 0 else tokens, *full, *[0] * 10, 0, 0, 0, self._now, ""]

    def _pool(self) -> list[object]:
        return [self._nodes + 1, 1, 0, self._nodes, 0, 0, 0]

    def _step(self, state: StateRows) -> tuple[Delta, str]:
        """Evict the least recent leaf, and insert another one."""
        self._now += 1
        rows = state.rows
        victim = self._order.pop(0)
        parent = rows[victim][PARENT]
        assert isinstance(parent, int)  # noqa: S101  # `_row` wrote it.
        changed: dict[NodeId, Row | None] = {victim: None}
        self._children[parent] -= 1
        tail = [] if self._children[parent] or parent == ROOT else [parent]
        above = ROOT
        for _ in range(8):
            above = self._ids[self._random.randrange(len(self._ids))]
            if above in rows and above != victim and self._children.get(above):
                break
        else:
            above = ROOT
        node_id = self._grown(above)
        tail.append(node_id)
        changed[node_id] = self._row(above)
        path, at = 0, above
        while at != ROOT and path < 40:
            row = list(rows[at])
            row[-2] = self._now
            changed[at] = row
            path, at = path + 1, rows[at][PARENT]  # type: ignore[assignment]
        delta = state.change(changed)
        delta["r"] = {POOL: [[[0, victim]], tail]}
        self._order += tail
        return delta, f"insert({path + 1} pages below node {above})"
