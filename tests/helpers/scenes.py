"""A cache on a stage: calls and what they leave, each in one line.

A prompt is a text of one sign a token ("12a"), or a sequence of tokens. A request writes the bytes
of its page to every slot, so that a test can check them at its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from itertools import groupby
from typing import Generic, TypeVar

import pytest
from attrs import define, field

from kvcanon.conformance.judge.judges import make_judged
from kvcanon.conformance.protocol.adapter import CopyControl
from kvcanon.conformance.protocol.cache_names import load_adapter
from kvcanon.lab.variants.variant import varied
from kvcanon.reference import ManualEngine, ReferenceCache
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import CacheError
from kvcanon.spec.events import AllBlocksCleared, BlockStored, Event
from kvcanon.spec.operations import HostInserted, HostPayload, Inserted, LoadedBack, Receipt
from kvcanon.spec.snapshot import NodeState
from kvcanon.spec.transfer import TransferStatus
from kvcanon.spec.types import (
    DEFAULT_NAMESPACE,
    FULL,
    GPU,
    MAMBA,
    SWA,
    Component,
    Counts,
    Key,
    Medium,
    Namespace,
    Slot,
    Slots,
    TransferId,
    Unit,
    make_key,
)
from kvcanon.spec.views import COLUMN, PageRow, path_of, rows_along

Prompt = str | Sequence[int]
Refusal = TypeVar("Refusal", bound=CacheError)
Kind = TypeVar("Kind", bound=Cache)
Control = TypeVar("Control", bound=CopyControl)
Told = TypeVar("Told", bound=Event)

BOTH_CACHES = ("reference", "optimized")


@define
class Scene(Generic[Kind, Control]):
    """A cache, and the control of its copies."""

    cache: Kind
    copies: Control
    units: dict[bytes, Unit] = field(factory=dict)
    """The first token of each page that was stored, by its hash."""

    def key(self, prompt: Prompt, namespace: Namespace = DEFAULT_NAMESPACE) -> Key:
        """The key of a prompt, divided into this cache's pages."""
        config = self.cache.config
        tokens = [int(sign, 36) for sign in prompt] if isinstance(prompt, str) else prompt
        return make_key(tokens, config.page_size, namespace, bigram=config.bigram)

    def play(self, script: str) -> object:
        """Make calls that a text names, as "put 12; flush; evict full=1"; the last answer."""
        answer: object = None
        for line in script.split("; "):
            name, *words = line.split()
            prompts = [word for word in words if "=" not in word]
            numbers = {k: int(n) for k, _, n in (w.partition("=") for w in words) if n}
            answer = getattr(self, name, None) or getattr(self.cache, name)
            answer = answer(*prompts, **numbers)  # type: ignore[operator]
        return answer

    # Calls.

    def put(
        self,
        prompt: Prompt,
        *,
        namespace: Namespace = DEFAULT_NAMESPACE,
        start: int | None = None,
        window: int | None = None,
        counted: int = 0,
        priority: int = 0,
    ) -> Inserted:
        """Insert a prompt as an engine does: reuse the prefix hit, compute the rest, insert.

        The request computes from page `start` on (default: the end of the device prefix), and still
        owns the window data of its last `window` pages (default: all computed pages).
        """
        key, cache = self.key(prompt, namespace), self.cache
        if start is None:
            start = cache.match(key).device_pages
        receipt = cache.lock(key.prefix(start))
        slots = self.compute(key, start, window)
        inserted = cache.insert(key, start, slots, counted_pages=counted, priority=priority)
        cache.unlock(receipt)
        return inserted

    def compute(self, prompt: Prompt | Key, start: int = 0, window: int | None = None) -> Slots:
        """Allocate slots for the pages of a prompt from `start` on, and fill them."""
        key = prompt if isinstance(prompt, Key) else self.key(prompt)
        count, components = len(key) - start, self.cache.config.components
        swa = count if SWA in components else 0
        slots = self.cache.allocate(Counts(count, swa, int(MAMBA in components and count > 0)))
        for component, some in slots:
            for at, slot in enumerate(some, start=len(key) - len(some)):
                self.cache.write(component, slot, page_bytes(key, at, component))
        if window is None or window >= swa:
            return slots
        gone = swa - window
        self.cache.free(Slots(swa=slots.swa[:gone]))
        return Slots(slots.full, slots.swa[gone:], slots.mamba)

    def hand_over(self, prompt: Prompt, start: int = 0, window: int | None = None) -> Inserted:
        """Compute a prompt from `start` on, and insert it without a lock."""
        return self.cache.insert(self.key(prompt), start, self.compute(prompt, start, window))

    def fetch(
        self, prompt: Prompt, *, start: int = 0, window: int = 0, state: bool = False
    ) -> HostInserted:
        """Prefetch a prompt's pages, the window data of the last ones, and its mamba state."""
        key = self.key(prompt)

        def some(component: Component, first: int) -> tuple[bytes, ...]:
            return tuple(page_bytes(key, at, component) for at in range(first, len(key)))

        full, swa = some(FULL, start), some(SWA, len(key) - window)
        payload = HostPayload(full, swa, some(MAMBA, len(key) - 1) if state else ())
        return self.cache.insert_host(key, start, payload)

    def lock(self, prompt: Prompt) -> Receipt:
        """Lock a prompt that is completely in the tree."""
        return self.cache.lock(self.key(prompt))

    def load(self, prompt: Prompt, quota: int | None = None) -> LoadedBack:
        """Load a prompt back."""
        return self.cache.load_back(self.key(prompt), quota)

    def evict(self, full: int = 0, swa: int = 0, mamba: int = 0) -> Counts:
        """Evict from the device; what was freed."""
        return self.cache.evict(Counts(full, swa, mamba)).freed

    def evict_host(self, full: int = 0, swa: int = 0, mamba: int = 0) -> Counts:
        """Evict from the host; what was freed."""
        return self.cache.evict_host(Counts(full, swa, mamba)).freed

    def back_up(self, *prompts: Prompt) -> list[TransferId]:
        """Insert prompts, each of which begins one backup."""
        return [transfer_id for prompt in prompts for transfer_id in self.put(prompt).backups]

    def end(
        self, *done: TransferId, failed: TransferId | None = None
    ) -> tuple[tuple[TransferId, TransferStatus], ...]:
        """Let a copy fail and others be done, and poll; what has settled."""
        if failed is not None:
            self.copies.fail(failed)
        for transfer_id in done:
            self.copies.acknowledge(transfer_id)
        return self.cache.poll().transfers

    def fail(self) -> None:
        """Let the oldest open copy fail, and poll."""
        self.end(failed=self.copies.open_transfer_ids[0])

    def hit(self, prompt: Prompt, namespace: Namespace = DEFAULT_NAMESPACE) -> int:
        """The prefix hit of a prompt in pages; a use, as every match."""
        return self.cache.match(self.key(prompt, namespace)).prefix_pages

    # What there is.

    def rows(self, prompt: Prompt) -> Sequence[PageRow]:
        """The pages of a prompt that are in the tree."""
        return rows_along(self.cache.snapshot(), self.key(prompt))

    def see(self, prompt: Prompt, *what: Component | Medium) -> str:
        """A prompt's data, one sign a page: `#` present, `~` pending, `.` absent.

        Of all components, or of those that are named; on the device, if no medium is named.
        """
        medium = next((each for each in what if isinstance(each, Medium)), GPU)
        components = [each for each in what if isinstance(each, Component)]

        def sign(row: PageRow, component: Component) -> str:
            if row.slot(component, medium) is None:
                return "."
            pending = (row.loading if medium is GPU else row.backing)[COLUMN[component]]
            return "#" if pending is None else "~"

        rows, pages = self.rows(prompt), len(self.key(prompt))
        return " ".join(
            "".join(sign(row, each) for row in rows).ljust(pages, ".")
            for each in components or self.cache.config.components
        )

    def refs(self, prompt: Prompt, *components: Component) -> str:
        """The lock refs of a prompt's pages; those of a mamba state are at its page."""
        rows = self.rows(prompt)
        return " ".join(
            "".join(str(row.lock_refs[COLUMN[component]] or 0) for row in rows)
            for component in components or self.cache.config.components
        )

    def slots(
        self, prompt: Prompt, component: Component = FULL, medium: Medium = GPU
    ) -> list[Slot | None]:
        """The slot of each page of a prompt in a pool."""
        return [row.slot(component, medium) for row in self.rows(prompt)]

    def nodes(self, prompt: Prompt) -> list[NodeState]:
        """The nodes on a prompt's path."""
        return [stop.node for stop in path_of(self.cache.snapshot(), self.key(prompt))]

    def ends(self, prompt: Prompt) -> list[int]:
        """The ends of the nodes on a prompt's path, in pages."""
        state = self.cache.snapshot()
        return [state.end(node) for node in self.nodes(prompt)]

    def free_slots(self, medium: Medium = GPU) -> Counts:
        """How many slots of each pool on a medium are free."""
        pools = self.cache.snapshot().pools
        return Counts(**{c.value: len(pools[c, medium].free) for c in self.cache.config.components})

    def heard(self) -> str:
        """The events since the last call."""
        return self.told(self.cache.take_events())

    def told(self, events: Sequence[Event]) -> str:
        """Events in words: what happened, the medium, and the first tokens of the pages."""
        told = []
        for event in events:
            if isinstance(event, AllBlocksCleared):
                told.append(("cleared", ""))
                continue
            if isinstance(event, BlockStored):
                self.units[event.block_hash] = event.page[0]
            verb = "stored" if isinstance(event, BlockStored) else "removed"
            told.append((f"{verb} {event.medium.name}", f" {self.units[event.block_hash]}"))
        runs = groupby(told, key=lambda each: each[0])
        return ", ".join(verb + "".join(unit for _, unit in run) for verb, run in runs)

    def taken(self, kind: type[Told]) -> list[Told]:
        """The events of one kind since the last call."""
        return [event for event in self.cache.take_events() if isinstance(event, kind)]

    def check_bytes(self, *prompts: Prompt) -> None:
        """Check that every slot that a match of these returns has the bytes of its page."""
        for prompt in prompts:
            key = self.key(prompt)
            matched = self.cache.match(key)
            for component, some in matched.slots:
                for at, slot in enumerate(some, start=matched.device_pages - len(some)):
                    assert self.cache.read(component, GPU, slot) == page_bytes(key, at, component)


Plain = Scene[ReferenceCache, ManualEngine]
Judged = Scene[Cache, CopyControl]


def plain(config: CacheConfig, script: str = "") -> Plain:
    """The plain cache, whose engine copies when the test says so, after these calls."""
    engine = ManualEngine()
    scene = Scene(ReferenceCache(config, engine), engine)
    if script:
        scene.play(script)
    return scene


def judged(name: str, config: CacheConfig, script: str = "") -> Judged:
    """A cache whose every step is judged by all laws, after these calls.

    `name` is one of our caches, or a variant of the plain cache.
    """
    adapter = load_adapter(name) if name in BOTH_CACHES else varied(name, [name])
    subject, judge = make_judged(adapter, config)
    assert subject.copies is not None
    scene = Judged(judge, subject.copies)
    if script:
        scene.play(script)
    return scene


def page_bytes(key: Key, page: int, component: Component) -> bytes:
    """The bytes of a page, different for every prefix, namespace and component."""
    text = f"{key.namespace} {key.pages[: page + 1]} {component}"
    return sha256(text.encode()).digest()[:8]


@contextmanager
def refused(
    cache: ReferenceCache, error: type[Refusal], match: str | None = None
) -> Iterator[pytest.ExceptionInfo[Refusal]]:
    """Check that the code inside is refused with this error, and changes nothing.

    Not even a tick or an id is used up, or a byte written, although no snapshot shows these.
    """
    state = cache._state

    def everything() -> object:
        payloads = [dict(pool.payloads) for pool in state.pools.values()]
        return cache.snapshot(), state.clock, state.next_id, payloads

    before = everything()
    with pytest.raises(error, match=match) as info:
        yield info
    assert everything() == before
