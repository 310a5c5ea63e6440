"""SGLang's write-through and load-back copies in flight, as transfers.

SGLang identifies a copy by its node. Here each copy has a number, the slots that it reads and
writes, and its lock's hold, all recorded when the copy is enqueued. Its nodes are those that have
its slots now, also after cuts.

On a CPU the bytes are copied when a copy is enqueued. SGLang's record of the copy
(`ongoing_write_through`, `ongoing_load_back`), its lock, and host data without an event remain
until SGLang takes acknowledgements; so long the copy is in flight.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count

from attrs import Factory, define, evolve, frozen

from kvcanon.conformance.engines.installed_names import EngineObject
from kvcanon.conformance.engines.sglang.peer_types import SGLangNode
from kvcanon.conformance.engines.sglang.snapshot import Tree
from kvcanon.spec.operations import Settled
from kvcanon.spec.snapshot import HoldState, TransferState
from kvcanon.spec.transfer import Direction, TransferStatus
from kvcanon.spec.types import Component, NodeId, Slot, TransferId

RECORDS = {Direction.BACKUP: "ongoing_write_through", Direction.LOAD_BACK: "ongoing_load_back"}
"""The attributes with SGLang's records of copies in flight, each with its node and lock."""

Run = dict[Component, tuple[Slot, ...]]


@frozen(eq=False)
class PendingCopy:
    """A copy in flight."""

    transfer_id: TransferId
    direction: Direction
    lock: EngineObject
    """The receipt of the copy's lock, by which SGLang's record of the copy is found."""
    sources: Run
    targets: Run
    hold: HoldState


@frozen(eq=False)
class Entry:
    """SGLang's record of a copy."""

    nodes: Sequence[SGLangNode]
    """The node that it locks, or the parts of the cut node, the upper part first."""
    locked: SGLangNode
    lock: EngineObject


@define(eq=False)
class PendingCopies:
    """The copies of one cache that are in flight, in the order in which they were enqueued."""

    cache: EngineObject
    tree: Tree
    ids: count[int]
    flying: list[PendingCopy] = Factory(list)

    def new_entries(self, direction: Direction) -> list[Entry]:
        """SGLang's records that were not seen before."""
        known = {id(copy.lock) for copy in self.flying}
        return [
            self._entry(noted)
            for noted in self._records(direction)
            if id(self._lock(noted)) not in known
        ]

    def add(
        self, direction: Direction, entry: Entry, runs: tuple[Run, Run], hold: HoldState
    ) -> int:
        """Add an enqueued copy, with the slots that it reads and writes.

        Returns its number.
        """
        sources, targets = runs
        number = next(self.ids)
        of_copy = evolve(hold, transfer_id=number)
        copy = PendingCopy(number, direction, entry.lock, sources, targets, of_copy)
        self.flying.append(copy)
        return copy.transfer_id

    def settle(self) -> Settled:
        """The copies whose records SGLang has dropped since the last call: they are done."""
        ended = [copy for copy in self.flying if not self._is_open(copy)]
        self.flying = [copy for copy in self.flying if self._is_open(copy)]
        return Settled(tuple((copy.transfer_id, TransferStatus.DONE) for copy in ended))

    def states(self, nodes: Sequence[SGLangNode]) -> tuple[TransferState, ...]:
        """The copies, each with the nodes that have its slots; `nodes` has parents first."""
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
        """The loads in flight that write data of any of these nodes."""
        for copy in self.flying:
            if copy.direction is Direction.LOAD_BACK and any(self._parts(copy, nodes)):
                yield copy

    def backing(self, nodes: Sequence[SGLangNode]) -> dict[tuple[NodeId, Component], TransferId]:
        """The backup in flight for each node's component."""
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
                slots = self.tree.slots(node, component, copy.direction.target)
                if not set(slots).isdisjoint(targets):
                    yield node.id, component

    def _is_open(self, copy: PendingCopy) -> bool:
        return any(self._lock(noted) is copy.lock for noted in self._records(copy.direction))

    def _records(self, direction: Direction) -> Collection[EngineObject]:
        """The open records: the node, the result of its lock, and in some releases its parts."""
        records: Mapping[object, EngineObject] = getattr(self.cache, RECORDS[direction])
        return records.values()

    def _lock(self, noted: EngineObject) -> object:
        """The object that identifies a record. It is there without a look at the tree."""
        return noted[1]

    def _entry(self, noted: EngineObject) -> Entry:
        """Read a record."""
        node, lock, *rest = noted
        parts = rest[0] if rest and isinstance(rest[0], list) else [node]
        return Entry([self.tree.node(each) for each in parts], self.tree.node(node), lock)
