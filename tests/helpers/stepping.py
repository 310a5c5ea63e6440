"""Small states of a real cache, page by page, in the form of the proofs' steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from attrs import frozen

from kvcanon.lab.prove.claim import claims
from kvcanon.spec.operations import Operation
from kvcanon.spec.snapshot import HoldState, NodeState, Snapshot
from kvcanon.spec.types import FULL, MAMBA, SWA, Key, Medium, Namespace, Page

SPAN = 1 << 12
"""More than there are pages. Copies are ordered by transfer, those of one transfer by page."""

CLAIMS = claims()
FUNCTIONS = {name: claim.function() for name, claim in CLAIMS.items()}

PageId = tuple[Namespace, tuple[Page, ...]]
"""A page, identified by the whole prefix up to it."""

Value = TypeVar("Value")


def step(counted: Counter[str], name: str, *arguments: object) -> Any:  # noqa: ANN401
    """Apply a step of the proofs to a state of any size; check its premises and promises."""
    claim, function = CLAIMS[name], FUNCTIONS[name]
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    values = {**function.__globals__, **dict(zip(names, arguments, strict=True))}
    # The first line bounds the size for the solver.
    for line in claim.pre[1:]:
        assert eval(line, values), f"{name} needs {line}"  # noqa: S307  Our own text.
    values["__return__"] = result = function(*arguments)
    for line in claim.post:
        assert eval(line, values), f"{name} promises {line}"  # noqa: S307  As above.
    counted[name] += 1
    return result


def pages_of(state: Snapshot) -> dict[PageId, tuple[NodeState, int]]:
    """The node of each page, and which page of the node it is."""
    found: dict[PageId, tuple[NodeState, int]] = {}
    stack: list[tuple[NodeState, tuple[Page, ...]]] = [(state.nodes[state.root_id], ())]
    while stack:
        node, above = stack.pop()
        for at in range(len(node.pages)):
            found[node.namespace, above + node.pages[: at + 1]] = (node, at)
        stack += [(state.nodes[child], above + node.pages) for child in node.child_ids]
    return found


@frozen
class Pages:
    """The pages before and after an operation, in an order in which parents come first."""

    ids: tuple[PageId, ...]

    @property
    def parents(self) -> tuple[int, ...]:
        """The parent of each page; -1 is the root."""
        at = {page_id: number for number, page_id in enumerate(self.ids)}
        return tuple([at.get((space, path[:-1]), -1) for space, path in self.ids])

    @property
    def starts(self) -> tuple[int, ...]:
        """How many pages are above each page."""
        return tuple([len(path) - 1 for _, path in self.ids])

    def end_of(self, key: Key) -> int:
        """The last page of a key."""
        return self.ids.index((key.namespace, tuple(key.pages)))

    def column(
        self, state: Snapshot, read: Callable[[NodeState, int], Value], missing: Value
    ) -> tuple[Value, ...]:
        """A value for each page in a state; `missing` for pages that are not there."""
        where = pages_of(state)
        return tuple([read(*where[each]) if each in where else missing for each in self.ids])

    def there(self, state: Snapshot, medium: Medium) -> tuple[bool, ...]:
        """Which pages have slots for full data on a medium."""
        return self.column(state, lambda node, _: node[FULL].slots(medium) is not None, False)

    def pending(self, state: Snapshot, medium: Medium) -> tuple[bool, ...]:
        """Which pages have slots that a copy has yet to fill."""
        return self.column(state, lambda node, _: node[FULL].pending(medium) is not None, False)

    def since(self, state: Snapshot, medium: Medium) -> tuple[int, ...]:
        """The enqueue order of these copies, for each page."""
        ids = self.column(state, lambda node, _: node[FULL].pending(medium) or 0, 0)
        return tuple([SPAN * each + (at if each else 0) for at, each in enumerate(ids)])

    def locked(self, state: Snapshot) -> tuple[bool, ...]:
        """Which pages have a lock ref of any kind on their node."""
        return self.column(
            state,
            lambda node, _: any(node[each].lock_refs > 0 for each in (FULL, SWA, MAMBA)),
            False,
        )

    def refs(self, state: Snapshot) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Full, swa and mamba lock refs; those of a mamba state are at the last page of a node."""

        def mamba(node: NodeState, at: int) -> int:
            return node[MAMBA].lock_refs if at == len(node.pages) - 1 else 0

        return (
            self.column(state, lambda node, _: node[FULL].lock_refs, 0),
            self.column(state, lambda node, _: node[SWA].lock_refs, 0),
            self.column(state, mamba, 0),
        )

    def end_of_hold(self, state: Snapshot, hold: HoldState) -> int:
        """The last page that a receipt holds; -1 if it holds nothing."""
        ends = {
            node.node_id: page_id
            for page_id, (node, at) in pages_of(state).items()
            if at == len(node.pages) - 1
        }
        return self.ids.index(ends[hold.node_id]) if hold.node_id in ends else -1


@frozen
class Seen:
    """An operation of a cache: the state before, the answer, and the state after."""

    before: Snapshot
    operation: Operation
    answer: object
    after: Snapshot
    counted: Counter[str]

    @property
    def pages(self) -> Pages:
        """All pages present before or after."""
        both = pages_of(self.before) | pages_of(self.after)
        return Pages(tuple(sorted(both, key=lambda each: (len(each[1]), repr(each)))))

    def step(self, name: str, *arguments: object) -> Any:  # noqa: ANN401
        """A step of the proofs."""
        return step(self.counted, name, *arguments)


def deepest_first(gone: Sequence[bool]) -> Iterator[int]:
    """Positions, from the last one up."""
    return (at for at in reversed(range(len(gone))) if gone[at])


def less(ours: Sequence[bool], theirs: Sequence[bool]) -> list[bool]:
    """Elementwise: in the first and not in the second."""
    return [a and not b for a, b in zip(ours, theirs, strict=True)]
