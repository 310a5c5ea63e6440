"""A case: the terms of one run of a store, and its actions.

Actions are total: what they name is a pick, modulo what there is. So every part of a case is a
case, and a case can be reduced by leaving actions out. As JSON an action is a list of its name and
its picks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from attrs import astuple, fields, frozen


@frozen
class PutPages:
    """Put consecutive pages of a prompt."""

    writer: int = 0
    prompt: int = 0
    first: int = 0
    count: int = 1
    version: int = 0
    """Another version has other bytes under the same name."""
    pools: int = 0
    """0: all pools; else the pool of this number alone, counted from 1."""


@frozen
class GetPages:
    """Get consecutive pages of a prompt, in all pools."""

    writer: int = 0
    prompt: int = 0
    first: int = 0
    count: int = 1
    buffers: int = 0
    """0: all fit; 1: the first is half as large; 2: the first is larger."""


@frozen
class AskPages:
    """Ask for consecutive pages of a prompt, in all pools."""

    writer: int = 0
    prompt: int = 0
    first: int = 0
    count: int = 1


@frozen
class AskRun:
    """Ask for the leading run of a prompt."""

    writer: int = 0
    prompt: int = 0
    count: int = 8


@frozen
class RemovePages:
    """Remove consecutive pages of a prompt, in all pools."""

    writer: int = 0
    prompt: int = 0
    first: int = 0
    count: int = 1


@frozen
class Restart:
    """Close the store of a writer, and open it in another process."""

    writer: int = 0


@frozen
class KillInPut:
    """Kill the process of a writer in a put, and open the store again."""

    writer: int = 0
    prompt: int = 0
    first: int = 0
    count: int = 1
    version: int = 0
    at_call: int = 0
    """After how many calls that leave Python: of the system, of files, or of native libraries."""


@frozen
class PutOnFullDisk:
    """Put pages while no file can grow beyond a size."""

    writer: int = 0
    prompt: int = 0
    first: int = 0
    count: int = 1
    version: int = 0
    most: int = 0
    """The size, in eighths of the largest page."""


@frozen
class DamageFile:
    """Close all stores, damage a file of a page that was put, and open them again.

    A store that is not durable stays open meanwhile.
    """

    prompt: int = 0
    page: int = 0
    """With `prompt` a pick of one of the pages that were put."""
    kind: int = 0
    """0: cut; 1: emptied; 2: a bit flipped; 3: the second half zeroed; 4: lengthened."""
    place: int = 0
    """Where in the file, in 16ths of it."""


@frozen
class PutAtOnce:
    """Two writers put the same pages, in two versions: the first is stopped half-way."""

    writer: int = 0
    prompt: int = 0
    first: int = 0
    count: int = 1
    at_call: int = 0


@frozen
class StopServer:
    """Stop the server or the medium."""


@frozen
class ContinueServer:
    """Let the server or the medium go on, and wait until the store should have noticed."""


@frozen
class LookAtMemory:
    """Look at the buffers of earlier gets, and at the size of the store."""


StoreAction: TypeAlias = (
    PutPages
    | GetPages
    | AskPages
    | AskRun
    | RemovePages
    | Restart
    | KillInPut
    | PutOnFullDisk
    | DamageFile
    | PutAtOnce
    | StopServer
    | ContinueServer
    | LookAtMemory
)
ACTIONS: Mapping[str, type[StoreAction]] = {
    each.__name__: each
    for each in (
        PutPages,
        GetPages,
        AskPages,
        AskRun,
        RemovePages,
        Restart,
        KillInPut,
        PutOnFullDisk,
        DamageFile,
        PutAtOnce,
        StopServer,
        ContinueServer,
        LookAtMemory,
    )
}


@frozen
class StoreCase:
    """A case."""

    actions: tuple[StoreAction, ...]
    writers: int = 1
    page_bytes: int = 64
    pools: int = 1
    capacity_pages: int = 0
    """The capacity in pages; 0 for none."""
    stretch: int = 1
    """How many pages of a prompt each page of an action stands for."""
    other: str = ""
    """The field of the identity in which the last writer's differs; empty if it does not."""

    def as_json(self) -> dict[str, object]:
        """The case as values of JSON."""
        numbers = {
            each.name: getattr(self, each.name)
            for each in fields(StoreCase)
            if each.name != "actions"
        }
        return {
            **numbers,
            "actions": [[type(each).__name__, *astuple(each)] for each in self.actions],
        }


def case_from_json(value: Mapping[str, object]) -> StoreCase:
    """The case that `as_json` gave."""
    rows = value["actions"]
    assert isinstance(rows, list)  # noqa: S101  # As it was written.
    others = {name: each for name, each in value.items() if name != "actions"}
    actions = tuple(ACTIONS[name](*picks) for name, *picks in rows)
    return StoreCase(actions, **others)  # type: ignore[arg-type]
