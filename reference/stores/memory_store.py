"""A store in the memory of a server, and its client, which never waits longer than its deadline.

The server keeps all pools of a page as one entry, so that they come and go together. When it is
full it evicts the least recently used page that no other page follows.

The client asks the server in a thread of its own and waits for the answer until the deadline. What
comes later is dropped: the thread never sees the caller's buffers. After a missed deadline the
client leaves the server alone for a while, and says no at once.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import TypeVar

from attrs import define, evolve, field

from kvcanon.spec.stores.pages import (
    PageKey,
    StoreIdentity,
    identity_digest,
    page_digest,
    parent_of,
)

DEADLINE_SECONDS = 0.1
"""How long a call waits for the server."""
PAUSE_SECONDS = 0.2
"""How long the server is left alone after a missed deadline."""

Value = TypeVar("Value")


@define
class _Entry:
    """A page in the server, with all pools of it that were put."""

    parent: bytes | None
    pools: dict[str, bytes] = field(factory=dict)
    children: int = 0

    def size(self) -> int:
        return sum(map(len, self.pools.values()))


@define(eq=False)
class MemoryServer:
    """The server: pages by name, within a capacity."""

    capacity_bytes: int | None = None
    running: threading.Event = field(factory=threading.Event)
    """Cleared to stop the server: every call then waits until it is set again."""
    used_bytes: int = 0
    pages: OrderedDict[bytes, _Entry] = field(factory=OrderedDict)
    """In the order of their last use, the oldest first."""
    lock: threading.Lock = field(factory=threading.Lock)

    def __attrs_post_init__(self) -> None:
        self.running.set()

    def put(self, name: bytes, parent: bytes | None, pool: str, content: bytes) -> bool:
        """Store one pool of a page. False if there is no room."""
        entry = self.pages.get(name)
        before = len(entry.pools.get(pool, b"")) if entry else 0
        if not self.make_room(len(content) - before, {name, parent}):
            return False
        if entry is None:
            entry = self.pages[name] = _Entry(parent)
            if parent is not None and parent in self.pages:
                self.pages[parent].children += 1
            entry.children = sum(each.parent == name for each in self.pages.values())
        entry.pools[pool] = content
        self.used_bytes += len(content) - before
        self.use(name)
        return True

    def get(self, name: bytes, pool: str) -> bytes | None:
        """One pool of a page; None if it is not there."""
        entry = self.pages.get(name)
        if entry is None or pool not in entry.pools:
            return None
        self.use(name)
        return entry.pools[pool]

    def has(self, name: bytes, pool: str) -> bool:
        """Whether a pool of a page is there."""
        entry = self.pages.get(name)
        return entry is not None and pool in entry.pools

    def remove(self, name: bytes, pool: str) -> None:
        """Remove one pool of a page, and the page with its last pool."""
        entry = self.pages.get(name)
        if entry is not None and pool in entry.pools:
            self.used_bytes -= len(entry.pools.pop(pool))
            if not entry.pools:
                self.drop(name)

    def use(self, name: bytes) -> None:
        """Make a page the most recently used one."""
        self.pages.move_to_end(name)

    def make_room(self, more: int, kept: set[bytes | None]) -> bool:
        """Evict until this many more bytes fit. False if they cannot."""
        if self.capacity_bytes is None:
            return True
        while self.used_bytes + more > self.capacity_bytes:
            victim = self.victim(kept)
            if victim is None:
                return False
            self.drop(victim)
        return True

    def victim(self, kept: set[bytes | None]) -> bytes | None:
        """The least recently used page that no page follows, and that is not to be kept."""
        for name, entry in self.pages.items():
            if not entry.children and name not in kept:
                return name
        return None

    def drop(self, name: bytes) -> None:
        """Remove a page whole."""
        entry = self.pages.pop(name)
        self.used_bytes -= entry.size()
        if entry.parent is not None and entry.parent in self.pages:
            self.pages[entry.parent].children -= 1


@define(eq=False)
class MemoryStore:
    """The client: a `PageStore` with a deadline for each call."""

    server: MemoryServer
    identity: StoreIdentity
    alone_until: float = 0.0
    """The server is left alone until then, on the monotonic clock."""

    def put(self, pages: Sequence[tuple[PageKey, bytes]]) -> list[bool]:
        """Store pages, in order."""
        return self.ask(lambda: [self.put_one(*each) for each in pages], [False] * len(pages))

    def get(self, pages: Sequence[tuple[PageKey, memoryview]]) -> list[int | None]:
        """Read pages; the buffers are filled here, after the server has answered."""
        keys = [key for key, _ in pages]
        missed: list[bytes | None] = [None] * len(pages)
        found = self.ask(lambda: [self.read(key) for key in keys], missed)
        return [
            self.fill(buffer, content) for content, (_, buffer) in zip(found, pages, strict=True)
        ]

    def exists(self, keys: Sequence[PageKey]) -> list[bool]:
        """Whether each page is there."""
        there = [False] * len(keys)
        return self.ask(
            lambda: [self.server.has(self.name_of(key), key.pool) for key in keys], there
        )

    def leading_run(self, keys: Sequence[PageKey]) -> int:
        """How many pages from the first on have all of their pools."""
        wanted = [(key, pool) for key in keys for pool in self.identity.pools]
        there = self.exists([evolve(key, pool=pool) for key, pool in wanted])
        missing = there.index(False) if False in there else len(there)
        return missing // len(self.identity.pools)

    def remove(self, keys: Sequence[PageKey]) -> None:
        """Remove pages."""

        def work() -> None:
            for key in keys:
                self.server.remove(self.name_of(key), key.pool)

        self.ask(work, None)

    def close(self) -> None:
        """Nothing is held."""

    def name_of(self, key: PageKey) -> bytes:
        """The name of a page with all of its pools, in the server."""
        digest = page_digest(evolve(key, pool=""), self.identity.page_size)
        return identity_digest(self.identity) + digest

    def put_one(self, key: PageKey, content: bytes) -> bool:
        """Store one page."""
        parent = parent_of(key, self.identity.page_size)
        above = None if parent is None else self.name_of(parent)
        return self.server.put(self.name_of(key), above, key.pool, content)

    def read(self, key: PageKey) -> bytes | None:
        """The content of one page."""
        return self.server.get(self.name_of(key), key.pool)

    def fill(self, buffer: memoryview, content: bytes | None) -> int | None:
        """Copy a page into its buffer, if it fits."""
        if content is None or len(content) > len(buffer):
            return None
        buffer[: len(content)] = content
        return len(content)

    def ask(self, work: Callable[[], Value], otherwise: Value) -> Value:
        """Let the server do some work; `otherwise` if there is no answer by the deadline."""
        if time.monotonic() < self.alone_until:
            return otherwise
        answers: SimpleQueue[Value] = SimpleQueue()
        threading.Thread(target=self.serve, args=(work, answers), daemon=True).start()
        try:
            return answers.get(timeout=DEADLINE_SECONDS)
        except Empty:
            self.alone_until = time.monotonic() + PAUSE_SECONDS
            return otherwise

    def serve(self, work: Callable[[], Value], answers: SimpleQueue[Value]) -> None:
        """Do the work on the server's side, as soon as it runs."""
        self.server.running.wait()
        with self.server.lock:
            answers.put(work())
