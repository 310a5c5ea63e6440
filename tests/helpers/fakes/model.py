"""An engine that serves prompts from the plain cache, with a model that shows each wrong slot.

The model's keys are hashes: what is kept of a token depends on all that its layers read before it,
through slots. So a wrong slot gives other tokens, at once and in all that is computed from it.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Protocol

from attrs import define, evolve, field, frozen

from kvcanon.reference import ReferenceCache
from kvcanon.reference.engine import InlineEngine
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import OutOfSlots
from kvcanon.spec.events import Event
from kvcanon.spec.operations import Receipt
from kvcanon.spec.types import (
    FULL,
    GPU,
    SWA,
    Component,
    Counts,
    Key,
    Namespace,
    Slots,
    WritePolicy,
    make_key,
    shortage,
)

WORD = 8
VOCABULARY = 256
WAIT_SECONDS = 0.001


class EventSender(Protocol):
    """What events are given to."""

    def publish(self, events: Sequence[Event]) -> object:
        """Take the events of a step."""


@frozen
class Scored:
    """A generated token, its log-probability, and the next likeliest."""

    token: int
    logprob: float
    second: int
    second_logprob: float


@define
class FakeRun:
    """A request while it runs."""

    tokens: list[int]
    count: int
    namespace: Namespace
    device_tokens: int = 0
    host_tokens: int = 0
    scored: list[Scored] = field(factory=list)
    aborted: bool = False
    stop_token: int | None = None
    stop_text: str = ""
    preemptions: int = 0
    receipt: Receipt | None = None
    start_pages: int = 0
    hit: Slots = field(factory=Slots)
    own: Slots = field(factory=Slots)


def config_of(
    *,
    page_size: int = 4,
    window: int = 0,
    pool_pages: int = 96,
    window_pages: int = 0,
    host: int = 0,
) -> CacheConfig:
    """The settings of an engine: sizes of pools in pages, a window in tokens, 0 for none."""
    swa = (window_pages or pool_pages) if window else 0
    return CacheConfig(
        page_size=page_size,
        window_tokens=window or None,
        device_slots=Counts(pool_pages, swa),
        host_slots=Counts(host, host if window else 0),
        write_policy=WritePolicy.WRITE_THROUGH if host else WritePolicy.NONE,
        slot_bytes=WORD * page_size,
    )


class FakeEngine:
    """Serves requests, a token of each in turn. Methods with short docstrings are for faults."""

    def __init__(
        self,
        config: CacheConfig,
        transfers: InlineEngine | None = None,
        events: EventSender | None = None,
    ) -> None:
        self.config = config
        self.cache = ReferenceCache(config, transfers)
        self.events = events
        self.lock = threading.Lock()
        self.admitted = 0
        self.lost_pages = 0
        """Pages that a fault lost: they are neither free nor in the tree."""
        self.speculates = False
        """Whether a draft model computes the last page of each hit again."""
        self.grows = False
        """Whether a request takes pages as its reply grows, and is taken back where there are none;
        otherwise it takes all at its start."""
        self.preemptions = 0
        self.running = 0
        """Requests that wait or run."""
        self.weights: dict[str | None, int] = {}
        """How often those of the model (None) or of an adapter were replaced."""
        self.publish()

    def serve(self, run: FakeRun) -> Iterator[Scored]:
        """Serve a request token by token; what it computed is cached when it ends."""
        self.running += 1
        try:
            yield from self._served(run)
        finally:
            self.running -= 1

    def _served(self, run: FakeRun) -> Iterator[Scored]:
        model = self._begun(run)
        seen, goes_on, preempted = self.admitted, run.count > 0, False
        try:
            while goes_on and not run.aborted:
                with self.lock:
                    if seen != self.admitted:
                        model, seen = self._read_again(run), self.admitted
                    run.scored.append(self.adjusted(run, model.next()))
                    goes_on = len(run.scored) < run.count and not has_ended(run)
                    preempted = goes_on and not self._append(run, model, run.scored[-1].token)
                yield run.scored[-1]
                if preempted:
                    model, seen = self._begun(run), self.admitted
                    preempted = False
        except GeneratorExit:
            # Its client is gone, which was seen when a token was sent.
            run.aborted = True
            raise
        finally:
            if not preempted:
                with self.lock:
                    self.finish(run)
                    self.publish()

    def _begun(self, run: FakeRun) -> FakeModel:
        """Wait until a request is admitted, and its tokens are computed."""
        while (model := self._begin(run)) is None:
            time.sleep(WAIT_SECONDS)
        return model

    def _begin(self, run: FakeRun) -> FakeModel | None:
        """Admit a request and compute its prompt; None while others hold the room for it."""
        with self.lock:
            try:
                self.admit(run)
            except OutOfSlots:
                self.take_back(run)
                return None
            self.admitted += 1
            model = self._read_hit(run)
            self._prefill(run, model)
            return model

    def admit(self, run: FakeRun) -> None:
        """Match, load back, lock, and allocate what is needed to the end."""
        size = self.config.page_size
        key = self.key(run, run.tokens[:-1])
        if self.speculates:
            key = key.prefix(max(0, self.cache.match(key).prefix_pages - 1))
        found = self.cache.match(key)
        run.device_tokens = found.device_pages * size
        if found.prefix_pages > found.device_pages:
            loaded = self.cache.load_back(key.prefix(found.prefix_pages))
            self.cache.flush()
            found = self.cache.match(key)
            if loaded.transfer_id is not None:
                run.host_tokens = found.device_pages * size - run.device_tokens
        run.start_pages = found.device_pages
        run.receipt = self.cache.lock(key.prefix(found.device_pages))
        held = found.slots.swa[-self.config.window_pages :] if found.slots.swa else ()
        run.hit = self.table(key.prefix(found.device_pages), evolve(found.slots, swa=held))
        left = 0 if self.grows else run.count - len(run.scored)
        pages = -(-(len(run.tokens) + left) // size) - found.device_pages
        run.own = self.room(pages)

    def take_back(self, run: FakeRun) -> None:
        """Let go of a request that has no room, or no more of it."""
        self.release(run)
        run.device_tokens = run.host_tokens = 0

    def table(self, key: Key, slots: Slots) -> Slots:
        """The slots of a hit."""
        return slots

    def key(self, run: FakeRun, tokens: Sequence[int]) -> Key:
        """The key of a request."""
        return make_key(tokens, self.config.page_size, run.namespace)

    def room(self, pages: int) -> Slots:
        """Slots for pages, after an eviction if needed."""
        counts = Counts(pages, pages if SWA in self.config.components else 0)
        try:
            return self.cache.allocate(counts)
        except OutOfSlots:
            free = {each: len(self.cache.free_slots(each, GPU)) for each in self.config.components}
            self.cache.evict(shortage(counts, Counts.of(free)))
            self.cache.flush()
            return self.cache.allocate(counts)

    def finish(self, run: FakeRun) -> None:
        """Insert what was computed, and let go of everything."""
        computed = run.tokens[: len(run.tokens)]
        key = self.key(run, computed)
        pages = max(0, len(key) - run.start_pages)
        rest = Slots(run.own.full[pages:], run.own.swa[pages:])
        if pages:
            self.insert(key, run.start_pages, Slots(run.own.full[:pages], run.own.swa[:pages]))
        self.cache.free(rest)
        self.release(run)
        self.cache.flush()

    def insert(self, key: Key, start_pages: int, slots: Slots) -> None:
        """Insert pages."""
        self.cache.insert(key, start_pages, slots)

    def release(self, run: FakeRun) -> None:
        """Unlock what a request holds."""
        if run.receipt is not None:
            self.cache.unlock(run.receipt)
            run.receipt = None

    def adjusted(self, run: FakeRun, scored: Scored) -> Scored:
        """The token as it is answered."""
        return scored

    def flush(self) -> None:
        """Empty the cache."""
        with self.lock:
            self.cache.reset()
            self.publish()

    def publish(self) -> None:
        """Send the events since the last time."""
        events = self.cache.take_events()
        if self.events is not None and events:
            self.events.publish(events)

    def held_pages(self) -> int:
        """Pages that are neither free nor evictable."""
        with self.lock:
            nodes = self.cache.snapshot().nodes.values()
        return self.lost_pages + sum(len(node.pages) for node in nodes if _is_locked(node))

    def replace_weights(self, lora: str | None = None) -> None:
        """Replace the weights of the model or of an adapter, and drop what they computed."""
        with self.lock:
            self.weights[lora] = self.weights.get(lora, 0) + 1
            self.drop_old()

    def drop_old(self) -> None:
        """Drop what old weights computed."""
        self.cache.reset()
        self.publish()

    def _read_hit(self, run: FakeRun) -> FakeModel:
        lora = run.namespace.lora
        weights = f"{lora} {self.weights.get(None, 0)} {self.weights.get(lora, 0)}"
        model = FakeModel(self.config.window_tokens or 0, weights)
        for component in self.config.components:
            data = [self.cache.read(component, GPU, slot) for slot in run.hit[component]]
            model.read(component, b"".join(data), run.start_pages * self.config.page_size)
        return model

    def _read_again(self, run: FakeRun) -> FakeModel:
        """The model as it is by what the slots of a request have now, which another may use."""
        model, size = self._read_hit(run), self.config.page_size
        used = -(-len(run.tokens) // size) - run.start_pages
        for component in self.config.components:
            own = run.own[component][:used]
            data = b"".join(self.cache.read(component, GPU, slot) for slot in own)
            words = len(run.tokens) - run.start_pages * size
            model.read(component, data[: words * WORD], len(run.tokens))
        return model

    def _prefill(self, run: FakeRun, model: FakeModel) -> None:
        size = self.config.page_size
        for at in range(run.start_pages * size, len(run.tokens)):
            self._compute(run, model, at)

    def _append(self, run: FakeRun, model: FakeModel, token: int) -> bool:
        """Go on with a token; False if there is no page for it: the request was taken back."""
        run.tokens.append(token)
        page = (len(run.tokens) - 1) // self.config.page_size - run.start_pages
        if page >= len(run.own.full):
            try:
                more = self.room(1)
            except OutOfSlots:
                self.preempt(run)
                return False
            run.own = Slots(run.own.full + more.full, run.own.swa + more.swa)
        self._compute(run, model, len(run.tokens) - 1)
        return True

    def preempt(self, run: FakeRun) -> None:
        """Take a request back: its pages are free, and it is computed again."""
        run.preemptions += 1
        self.preemptions += 1
        self.cache.free(run.own)
        run.own = Slots()
        self.take_back(run)

    def _compute(self, run: FakeRun, model: FakeModel, at: int) -> None:
        model.step(run.tokens[at], at)
        size = self.config.page_size
        if at % size == size - 1 or at == len(run.tokens) - 1:
            page = at // size
            for component in self.config.components:
                slot = run.own[component][page - run.start_pages]
                words = model.words(component, page * size, at + 1)
                self.cache.write(component, slot, words.ljust(WORD * size, b"\0"))


class FakeModel:
    """Computes keys from what it reads, and the next token from all of them."""

    def __init__(self, window: int, weights: str = "") -> None:
        self.window = window
        self.weights = weights
        self.full = hashlib.blake2b(digest_size=WORD)
        self.kept: dict[tuple[Component, int], bytes] = {}
        self.end = 0

    def read(self, component: Component, data: bytes, end: int) -> None:
        """Read the keys of a hit: those of full attention, or of the last window."""
        count = len(data) // WORD
        for number in range(count):
            word = data[number * WORD : (number + 1) * WORD]
            self.kept[component, end - count + number] = word
            if component is FULL:
                self.full.update(word)
        self.end = end

    def step(self, token: int, at: int) -> None:
        """Compute the keys of a token."""
        for component in (SWA, FULL) if self.window else (FULL,):
            word = _digest(self._seen(at), f"{component} {token} {at} {self.weights}".encode())
            self.kept[component, at] = word
        self.full.update(self.kept[FULL, at])
        self.end = at + 1

    def next(self) -> Scored:
        """The likeliest token after all that was read and computed."""
        drawn = int.from_bytes(_digest(self._seen(self.end), b"next"), "big")
        token, second = drawn % VOCABULARY, drawn // VOCABULARY % (VOCABULARY - 1)
        gap = 0.01 + drawn // 7 % 300 / 100
        best = -0.2 - drawn // 11 % 100 / 100
        return Scored(token, best, second + (second >= token), best - gap)

    def words(self, component: Component, first: int, end: int) -> bytes:
        """The keys of consecutive positions."""
        return b"".join(self.kept[component, at] for at in range(first, end))

    def _seen(self, at: int) -> bytes:
        """What a token at a position attends to."""
        window = [self.kept[SWA, seen] for seen in range(max(0, at - self.window), at)]
        return self.full.digest() + b"".join(window)


def text_of(token: int) -> str:
    """A generated token as text."""
    return f" t{token}"


def has_ended(run: FakeRun) -> bool:
    """Whether a reply ends with what it is to end with."""
    if run.stop_token is not None and run.scored[-1].token == run.stop_token:
        return True
    text = "".join(text_of(each.token) for each in run.scored)
    return bool(run.stop_text) and run.stop_text in text


def _digest(*parts: bytes) -> bytes:
    made = hashlib.blake2b(digest_size=WORD)
    for part in parts:
        made.update(part)
    return made.digest()


def _is_locked(node: object) -> bool:
    return any(data.lock_refs for data in node.data.values())  # type: ignore[attr-defined]
