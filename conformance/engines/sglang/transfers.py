"""SGLang's write-through and load-back copies in flight, as transfers.

SGLang knows a copy by its node. Here each has a number, the slots that it reads and writes, and
what its lock holds, all as they were when it was enqueued. Its nodes are those that have its slots
now, wherever they were cut since.

On a CPU the bytes are copied when a copy is enqueued. In flight until SGLang takes acknowledgements
are its records (`ongoing_write_through`, `ongoing_load_back`): the lock, and host data without
event.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from attrs import Factory, define, evolve, frozen

from kvcanon.conformance.engines.sglang.peer_types import SGLangNode
from kvcanon.conformance.engines.sglang.snapshot import Tree
from kvcanon.spec.operations import Settled
from kvcanon.spec.snapshot import HoldState, TransferState
from kvcanon.spec.transfer import Direction, TransferStatus
from kvcanon.spec.types import CPU, GPU, Component, Medium, NodeId, Slot, TransferId

RECORDS = {Direction.BACKUP: "ongoing_write_through", Direction.LOAD_BACK: "ongoing_load_back"}
"""Where SGLang notes its copies in flight, each with its node and what its lock gave."""

Run = dict[Component, tuple[Slot, ...]]


@frozen(eq=False)
class PendingCopy:
    """A copy in flight."""

    transfer_id: TransferId
    direction: Direction
    lock: object
    """The receipt of the copy's lock, by which SGLang's record of the copy is found."""
    sources: Run
    targets: Run
    hold: HoldState

    @property
    def target_medium(self) -> Medium:
        """Where it writes."""
        return CPU if self.direction is Direction.BACKUP else GPU


@frozen(eq=False)
class Entry:
    """SGLang's record of a copy."""

    nodes: Sequence[SGLangNode]
    """The node that it locks, or the parts that it was cut into, the upper first."""
    locked: SGLangNode
    lock: object


@define(eq=False)
class PendingCopies:
    """The copies of one cache that are in flight, in the order in which they were enqueued."""

    cache: Any
    tree: Tree
    ids: count[int]
    flying: list[PendingCopy] = Factory(list)

    def new_entries(self, direction: Direction) -> list[Entry]:
        """Entries of SGLang's records that are not known yet."""
        known = {id(copy.lock) for copy in self.flying}
        return [entry for entry in self._entries(direction) if id(entry.lock) not in known]

    def add(
        self, direction: Direction, entry: Entry, runs: tuple[Run, Run], hold: HoldState
    ) -> int:
        """Number a copy that was enqueued, with the slots that it reads and those that it writes.

        Returns its number.
        """
        sources, targets = runs
        number = next(self.ids)
        of_copy = evolve(hold, transfer_id=number)
        copy = PendingCopy(number, direction, entry.lock, sources, targets, of_copy)
        self.flying.append(copy)
        return copy.transfer_id

    def settle(self) -> Settled:
        """The copies that SGLang has forgotten since the last time: they are done."""
        ended = [copy for copy in self.flying if not self._is_open(copy)]
        self.flying = [copy for copy in self.flying if self._is_open(copy)]
        return Settled(tuple((copy.transfer_id, TransferStatus.DONE) for copy in ended))

    def states(self, nodes: Sequence[SGLangNode]) -> tuple[TransferState, ...]:
        """The copies, with the nodes that have their slots; these are given parents first."""
        return tuple(
            TransferState(
                copy.transfer_id,
                copy.direction,
                tuple(self._parts(copy, nodes)),
                copy.sources,
                copy.targets,
            )
            for copy in self.flying
        )

    def bringing(self, nodes: Sequence[SGLangNode]) -> Iterator[PendingCopy]:
        """The loads that bring data of any of these nodes."""
        for copy in self.flying:
            if copy.direction is Direction.LOAD_BACK and any(self._parts(copy, nodes)):
                yield copy

    def backing(self, nodes: Sequence[SGLangNode]) -> dict[tuple[NodeId, Component], TransferId]:
        """Which copy to the host has yet to fill which data of a node."""
        return {
            part: copy.transfer_id
            for copy in self.flying
            if copy.direction is Direction.BACKUP
            for part in self._parts(copy, nodes)
        }

    def _parts(
        self, copy: PendingCopy, nodes: Iterable[SGLangNode]
    ) -> Iterator[tuple[NodeId, Component]]:
        """The nodes that have the slots that a copy writes."""
        for node in nodes:
            for component, targets in copy.targets.items():
                slots = self.tree.slots(node, component, copy.target_medium)
                if not set(slots).isdisjoint(targets):
                    yield node.id, component

    def _is_open(self, copy: PendingCopy) -> bool:
        return any(entry.lock is copy.lock for entry in self._entries(copy.direction))

    def _entries(self, direction: Direction) -> list[Entry]:
        records: Mapping[object, Sequence[Any]] = getattr(self.cache, RECORDS[direction])
        return [self._entry(noted) for noted in records.values()]

    def _entry(self, noted: Sequence[Any]) -> Entry:
        """What is noted of a copy: its node, what its lock gave, and then perhaps its parts."""
        node, lock, *rest = noted
        parts = rest[0] if rest and isinstance(rest[0], list) else [node]
        return Entry([self.tree.node(each) for each in parts], self.tree.node(node), lock)
