"""The protocol of a store of pages.

Every method takes a batch and answers for each page. A store that fails, that is short of room or
that does not answer in time says no for the pages concerned; it raises nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kvcanon.spec.stores.pages import PageKey


class PageStore(Protocol):
    """An open store: a client of a server, or files that this process reads and writes."""

    def put(self, pages: Sequence[tuple[PageKey, bytes]]) -> Sequence[bool]:
        """Store pages; the answer says for each whether it is stored, whole.

        Where the store is durable, a page that is acknowledged is found after a crash. A page that
        is there already may be kept or replaced: a name stands for one content.
        """

    def get(self, pages: Sequence[tuple[PageKey, memoryview]]) -> Sequence[int | None]:
        """Read pages into buffers; the answer has the bytes of each page, or None for a miss.

        A page that is larger than its buffer is a miss, as is one that may be damaged. After the
        call has returned, no buffer is written to.
        """

    def exists(self, keys: Sequence[PageKey]) -> Sequence[bool]:
        """Whether each page is there, and would be given."""

    def leading_run(self, keys: Sequence[PageKey]) -> int:
        """How many of these pages are there before the first that is not, in every pool.

        `keys` names consecutive pages of a prompt in the first pool of the identity; the answer
        counts a page only if all pools of it are there.
        """

    def remove(self, keys: Sequence[PageKey]) -> None:
        """Remove pages. Removing a page that is not there is no error."""

    def close(self) -> None:
        """Give back all files and connections. What was stored stays, if the store is durable."""
