"""The jobs that copy pages to the host: of the next step, and those in flight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from attrs import Factory, define

from kvcanon.optimized._core import HashedPages
from kvcanon.optimized.vllm.step_copies import EndedStores, TierCopyJob


@define(eq=False)
class StoreJobs:
    """All stores. A page is found on the host once its bytes are there on all ranks."""

    pages: HashedPages
    ranks: int
    late: int = 1
    ahead: int = 2
    """The jobs that begin with the next step: of blocks that it overwrites, and of others."""
    _numbers: int = 2
    _awaited: set[int] = Factory(set)
    _ended: Counter[int] = Factory(Counter)
    _moved: Counter[int] = Factory(Counter)

    def next_number(self) -> int:
        """A number for a job that no other has."""
        self._numbers += 1
        return self._numbers

    def wait_for(self, jobs: Iterable[int]) -> None:
        """Let the next step wait for jobs, whose blocks it overwrites."""
        self._awaited.update(jobs)

    def take(self) -> tuple[Sequence[TierCopyJob], frozenset[int]]:
        """The jobs that begin with a step, and those that it waits for."""
        begun = []
        for number in (self.late, self.ahead):
            copies = self.pages.copies(number)
            if copies is not None:
                begun.append(TierCopyJob(number, *copies, to_host=True))
        self.late, self.ahead = self.next_number(), self.next_number()
        awaited, self._awaited = frozenset(self._awaited), set()
        return begun, awaited

    def settle(self, ended: EndedStores, *, check_blocks: bool) -> list[tuple[int, bool]]:
        """Make the pages known whose copies have ended on all ranks.

        With `check_blocks` only those that the engine still has in their blocks. Returns: the jobs
        that have ended, each with whether all ranks have moved its bytes.
        """
        settled = []
        for number, ranks in ended.ended.items():
            self._ended[number] += ranks
            self._moved[number] += ended.moved[number]
            if self._ended[number] >= self.ranks:
                moved = self._moved.pop(number) >= self.ranks
                del self._ended[number]
                self.pages.end_stores(number, moved=moved, check_blocks=check_blocks)
                settled.append((number, moved))
        return settled
