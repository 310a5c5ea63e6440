"""The order in which SGLang's controller makes a copy to the host, and what each call belongs to.

    evict_device_next_node      names a victim that must be copied first (only under write_back),
                                and those after it that the walk needs as well
    build_backup_spec           what the copy reads
    drive_host_eviction         room for it, pool by pool and perhaps again; also before the spec
    commit_backup               it has its host slots; without room there is no such call
    inc_lock_ref                its lock (not under write_back)
    mark_write_through_pending  which acknowledgement ends it

Room that is asked for between the first two calls and the commit is for the copy. A call that no
copy makes ends one that found no room. If that was one of several victims, each is named alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NoReturn

from attrs import define

from kvcanon.optimized.native_types import Three

NO_NODE = -1
NOTHING: Three = 0, 0, 0


class CallOutOfOrder(RuntimeError):
    """SGLang's controller called the core in an order that is not that of its release 0.5.23."""


class CopyStage(Enum):
    """How far a copy is."""

    NONE = "none is being made"
    NAMED = "a victim was named"
    PLANNED = "its spec was built"
    MADE = "it was committed"


@define(eq=False)
class CopyOrder:
    """The copy that the controller is about to make, or has made and not acknowledged yet."""

    stage: CopyStage = CopyStage.NONE
    name: int = NO_NODE
    """What SGLang knows it by: a node, or a further name of one."""
    nodes: tuple[int, ...] = ()
    """The nodes that it copies."""
    expected: Three = NOTHING
    """The tokens, or states, that it needs on the host, by component."""
    rooms: Three = NOTHING
    """What was free there before the controller took slots for it."""
    declined: tuple[int, ...] = ()
    """The nodes of a copy under write_back for which the host could not make all of the room."""
    alone: bool = False
    """Whether the rest of the walk's victims are copied one by one."""

    def name_victim(self, node: int, with_it: Sequence[int] = ()) -> None:
        """A victim was named, to be copied before it leaves, and others with it."""
        if self.stage is CopyStage.MADE:
            self._refuse("evict_device_next_node")
        self.stage, self.name, self.nodes = CopyStage.NAMED, node, (node, *with_it)
        self.declined = ()

    def victims(self, name: int) -> tuple[int, ...]:
        """The victims that were named by this name, if the spec of their copy is built next."""
        return self.nodes if self.stage is CopyStage.NAMED and self.name == name else ()

    def plan(self, name: int, nodes: tuple[int, ...]) -> None:
        """The spec of a copy is built."""
        if self.stage is CopyStage.MADE:
            self._refuse("build_backup_spec")
        if self.stage is not CopyStage.NAMED or self.nodes != nodes:
            self.expected = NOTHING
        self.stage, self.name, self.nodes = CopyStage.PLANNED, name, nodes

    def expect(self, tokens: Three, rooms: Three) -> None:
        """Note how much the named or planned copy needs, and how much is free."""
        self.expected, self.rooms = tokens, rooms

    def commit(self, name: int) -> tuple[int, ...]:
        """The copy has its slots; returns its nodes. Raises: CallOutOfOrder."""
        if self.stage is not CopyStage.PLANNED or self.name != name:
            self._refuse(f"commit_backup of {name}")
        self.stage, self.expected = CopyStage.MADE, NOTHING
        return self.nodes

    def locked_with(self, name: int) -> tuple[int, ...]:
        """The nodes that the copy's lock holds if it has this name, else none."""
        return self.nodes if self.stage is CopyStage.MADE and self.name == name else ()

    def acknowledge(self, name: int) -> tuple[int, ...]:
        """An acknowledgement will end the copy; returns its nodes. Raises: CallOutOfOrder."""
        if self.stage is not CopyStage.MADE or self.name != name:
            self._refuse(f"mark_write_through_pending of {name}")
        self.stage = CopyStage.NONE
        return self.nodes

    def give_up(self, call: str) -> None:
        """Drop a planned copy that found no host slots, as a call that is no part of it comes.

        Calls of every request look at the stage themselves, since mostly there is no copy.

        Raises: CallOutOfOrder, where a copy was committed and no acknowledgement ends it.
        """
        if self.stage is CopyStage.NONE:
            return
        if self.stage is CopyStage.MADE:
            self._refuse(call)
        self.stage, self.expected = CopyStage.NONE, NOTHING

    def ends_apart(self) -> bool:
        """End a copy that was not made; returns whether its victims are named one by one now."""
        if self.stage not in (CopyStage.NAMED, CopyStage.PLANNED):
            return False
        self.stage, self.expected = CopyStage.NONE, NOTHING
        self.alone = self.alone or len(self.nodes) > 1
        return len(self.nodes) > 1

    def end_walk(self) -> None:
        """End the walk of an eviction, and forget which host pools had too few slots."""
        self.give_up("evict_device_end")
        self.declined, self.alone = (), False

    def forget(self) -> None:
        """Forget the copy."""
        self.stage, self.expected, self.declined = CopyStage.NONE, NOTHING, ()
        self.alone = False

    def needs(self, kind: int) -> bool:
        """Whether room on the host for a component is room for the copy."""
        return self.expected[kind] > 0

    def is_declined(self) -> bool:
        """Whether the host has tried to make room for the copy already, and could not.

        The controller asks pool by pool, and again; another try would find more, and evict for it.
        """
        return bool(self.declined) and self.nodes == self.declined

    def _refuse(self, call: str) -> NoReturn:
        raise CallOutOfOrder(
            f"SGLang called {call}, and of the last copy, of {self.name}, {self.stage.value}: "
            "kvcanon.optimized.sglang.copy_order has the order"
        )
