"""Reduces a case of a store: the fewest actions and the smallest picks that break the same law."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from attrs import evolve, fields

from kvcanon.conformance.stores.case import (
    KillInPut,
    PutAtOnce,
    PutOnFullDisk,
    PutPages,
    StoreAction,
    StoreCase,
)
from kvcanon.spec.shortest import shortest

PLAYS = 80
"""The most plays to reduce a case."""

Shows = Callable[[StoreCase], bool]


def reduce_store_case(case: StoreCase, breaks: Shows) -> tuple[StoreCase, bool]:
    """The smallest case that is found, and whether the case shows the fault at all."""
    reducer = _CaseReducer(case, breaks)
    if not breaks(case):
        return case, False
    before = None
    while before != reducer.best and reducer.left:
        before = reducer.best
        reducer.plainer_terms()
        reducer.fewer_actions()
        reducer.smaller_picks()
    return reducer.best, True


class _CaseReducer:
    """The best case so far, and the plays that are left."""

    def __init__(self, case: StoreCase, breaks: Shows) -> None:
        self.best, self._breaks = case, breaks
        self.left = PLAYS
        self._tried: set[StoreCase] = set()

    def tries(self, case: StoreCase) -> bool:
        """Play a case; if it shows the fault it is the best."""
        if case in self._tried or not self.left:
            return False
        self._tried.add(case)
        self.left -= 1
        if not self._breaks(case):
            return False
        self.best = case
        return True

    def plainer_terms(self) -> None:
        """Fewer writers and pools, no capacity, no other identity, small pages, short prompts."""
        plain = StoreCase(())
        for each in fields(StoreCase):
            if each.name != "actions":
                self.tries(evolve(self.best, **{each.name: getattr(plain, each.name)}))
        if self.best.writers > 2:
            self.tries(evolve(self.best, writers=2))
        while self.best.stretch > 1:
            if not self.tries(evolve(self.best, stretch=self.best.stretch // 2)):
                break

    def fewer_actions(self) -> None:
        """Leave out as many actions as possible."""

        def shows(actions: Sequence[StoreAction]) -> bool:
            return self.tries(evolve(self.best, actions=tuple(actions)))

        shortest(self.best.actions, shows)

    def smaller_picks(self) -> None:
        """Make each pick of each action as small as possible."""
        for at in range(len(self.best.actions)):
            for smaller in _smaller(self.best.actions[at]):
                actions = self.best.actions
                self.tries(evolve(self.best, actions=(*actions[:at], smaller, *actions[at + 1 :])))


def _smaller(action: StoreAction) -> Iterator[StoreAction]:
    """A plain put for one that is interrupted; then the same action with one pick smaller."""
    if isinstance(action, KillInPut | PutOnFullDisk | PutAtOnce):
        yield PutPages(action.writer, action.prompt, action.first, action.count)
    plain = type(action)()
    for each in fields(type(action)):
        value, least = getattr(action, each.name), getattr(plain, each.name)
        if value != least:
            for smaller in dict.fromkeys((least, value // 2, value - 1)):
                if least <= smaller < value:
                    yield evolve(action, **{each.name: smaller})
