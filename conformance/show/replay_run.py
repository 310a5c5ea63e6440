"""Records a replay for a page: some of its calls step by step, and charts of all requests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from attrs import fields

from kvcanon.conformance.errors import ViolationError
from kvcanon.conformance.protocol.adapter import Capability, RequestSubject, Subject
from kvcanon.conformance.protocol.request import Admitted, RequestId
from kvcanon.conformance.protocol.wrapped_cache import Answer, Arguments, WrappedCache
from kvcanon.conformance.replay.engine import ReplayStats
from kvcanon.conformance.replay.request_engine import ServedByRequests
from kvcanon.conformance.report.answer_text import answer_in_words
from kvcanon.conformance.show.event_rows import EventRows
from kvcanon.conformance.show.rows import WaitingEvents, pool_name
from kvcanon.conformance.show.shown_run import Chart, ShownRun, ShownStep, breaches_of, config_facts
from kvcanon.conformance.show.step_packer import StepPacker
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import CacheError
from kvcanon.spec.events import Event
from kvcanon.spec.law import Need
from kvcanon.spec.operations import Operation, Receipt, TakeEvents, method_of
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import CPU, GPU, Component, Counts, Key, Slots

Result = TypeVar("Result")

RECENT_REQUESTS = 50
"""The hit rate is shown of all requests so far, and of so many last ones."""
SHOWN_TOKENS = 6
"""Tokens of a prompt that a call shows."""


class ReplayRecorder:
    """Records the calls from one request on, with the states after them, and counts of requests.

    Each state is turned into what changed at once, so that states do not fill the memory.
    """

    def __init__(
        self, subject: Subject | RequestSubject, *, first_request: int = 1, most_steps: int
    ) -> None:
        self._subject = subject
        self._shows = Need.SNAPSHOT in subject.shows
        self._tells = not self._shows and Need.EVENTS in subject.shows
        """Whether the tree is that of the events."""
        self._first_request, self._most_steps = first_request, most_steps
        self._request = 0
        """Index of the request that is being served."""
        self._operations = 0
        self._packer: StepPacker | None = None
        self._waiting = WaitingEvents(None)
        self._events = EventRows()
        self._lines: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self._hits: list[tuple[int, int]] = [(0, 0)]
        """Hit tokens and prompt tokens of all requests so far."""
        self._before: dict[str, int] = {}

    # What a replay calls.

    def around(self, cache: Cache) -> Cache:
        """A cache whose calls are recorded."""
        return _WatchedCache(cache, self)

    def around_requests(self, cache: ServedByRequests) -> ServedByRequests:
        """A cache of requests whose calls are recorded."""
        return _WatchedRequests(cache, self)

    def served(self, tally: ReplayStats) -> None:
        """Note the counts after a request."""
        self._request += 1
        hits = tally.device_hit_tokens + tally.host_hit_tokens
        self._hits.append((hits, tally.prompt_tokens))
        rate = self._lines["Hit rate"]
        rate["all so far"].append(_share((0, 0), self._hits[-1]))
        since = self._hits[max(0, len(self._hits) - 1 - RECENT_REQUESTS)]
        rate[f"last {RECENT_REQUESTS}"].append(_share(since, self._hits[-1]))
        self._note_pools()
        for component in self._config.components:
            evicted = tally.evicted[component]
            self._add("Evicted slots", component.value, evicted)
        self._add("Copies", "load-backs", tally.load_backs)
        self._add("Copies", "backups", tally.backups)

    # What the watched caches call.

    def call(self, operation: object, words: str, do: Callable[[], Result]) -> Result:
        """Make a call, and record it if it is one to show."""
        self._operations += 1
        if not self._is_shown():
            answer = do()
            if self._tells and self._packer is None and isinstance(operation, TakeEvents):
                self._events.move_to(answer if isinstance(answer, tuple) else ())
            return answer
        packer = self._begun()
        try:
            answer = do()
        except Exception as error:
            self._record(packer, operation, words, error)
            raise
        self._record(packer, operation, words, answer)
        return answer

    def run(self, title: str, facts: tuple[tuple[str, str], ...]) -> ShownRun:
        """The recorded run."""
        packer = self._begun()
        notes = [*packer.notes, *packer.lacks("The cache")]
        if self._operations > packer.steps:
            notes.append(
                f"{packer.steps:,} of {self._operations:,} calls are shown step by step, from "
                f"request {self._first_request} on; the charts are of all requests."
            )
        charts = tuple(
            Chart(name, "%" if name in ("Hit rate", "Used slots") else "", dict(lines), True)
            for name, lines in self._lines.items()
            if any(any(line) for line in lines.values())
        )
        return ShownRun(
            title=title,
            facts=(*facts, *config_facts(self._config)),
            config=self._config,
            group_word="request",
            charts=charts or packer.charts(),
            notes=tuple(notes),
            steps=packer.steps,
            breaks_at=packer.breaks_at,
            parts=packer.parts(),
        )

    # Inside.

    @property
    def _config(self) -> CacheConfig:
        return self._subject.cache.config

    def _is_shown(self) -> bool:
        if self._packer is None:
            return self._request + 1 >= self._first_request and self._most_steps > 0
        return self._packer.steps < self._most_steps

    def _begun(self) -> StepPacker:
        """The packer of the steps, which begins with the state of now."""
        if self._packer is None:
            state = self._state()
            self._waiting = WaitingEvents(state)
            self._packer = StepPacker(state, self._events)
        return self._packer

    def _state(self) -> Snapshot | None:
        return self._subject.cache.snapshot() if self._shows else None

    def _record(self, packer: StepPacker, operation: object, words: str, outcome: object) -> None:
        broken = outcome if isinstance(outcome, ViolationError) else None
        state = broken.step.after if broken is not None and broken.step else self._state()
        taken = isinstance(operation, TakeEvents)
        if self._shows:
            events = self._waiting.emitted(state, taken=taken)
        else:
            events = outcome if self._tells and taken and isinstance(outcome, tuple) else ()
        packer.add(
            ShownStep(
                self._request,
                self._operations,
                words,
                answer_in_words(outcome),
                isinstance(outcome, CacheError),
                state,
                events,
                () if broken is None else breaches_of(broken),
            )
        )

    def _note_pools(self) -> None:
        subject = self._subject
        if not isinstance(subject, Subject) or Capability.FREE_SLOTS not in subject.can:
            return
        for component in self._config.components:
            for medium in (GPU, CPU):
                capacity = self._config.capacity(component, medium)
                if capacity:
                    free = len(subject.cache.free_slots(component, medium))
                    used = round(100 * (capacity - free) / capacity, 1)
                    self._lines["Used slots"][pool_name(component, medium)].append(used)

    def _add(self, chart: str, line: str, total: int) -> None:
        """Add what a count grew by in this request."""
        name = f"{chart} {line}"
        self._lines[chart][line].append(total - self._before.get(name, 0))
        self._before[name] = total


class _WatchedCache(WrappedCache):
    """A cache whose calls are recorded."""

    def __init__(self, cache: Cache, recorder: ReplayRecorder) -> None:
        super().__init__(cache)
        self._recorder = recorder

    def _around(
        self,
        operation: Operation,
        call: Callable[Arguments, Answer],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Answer:
        words = _operation_in_words(operation)
        return self._recorder.call(operation, words, partial(call, *args, **kwargs))


class _WatchedRequests:
    """A cache of requests whose calls are recorded."""

    def __init__(self, cache: ServedByRequests, recorder: ReplayRecorder) -> None:
        self._cache, self._recorder = cache, recorder

    @property
    def config(self) -> CacheConfig:
        """The configuration of the cache."""
        return self._cache.config

    def admit(self, request_id: RequestId, key: Key) -> Admitted:
        """Admit a request."""
        words = f"admit({request_id}, {_key_in_words(key)})"
        return self._recorder.call(None, words, lambda: self._cache.admit(request_id, key))

    def finish(self, request_id: RequestId) -> None:
        """End a request."""
        self._recorder.call(None, f"finish({request_id})", lambda: self._cache.finish(request_id))

    def take_events(self) -> tuple[Event, ...]:
        """Return the events since the last call."""
        return self._recorder.call(TakeEvents(), "take_events()", self._cache.take_events)


def _share(before: tuple[int, int], after: tuple[int, int]) -> float:
    """The hit rate between two counts, in percent."""
    hits, prompts = after[0] - before[0], after[1] - before[1]
    return round(100 * hits / prompts, 1) if prompts else 0.0


def _operation_in_words(operation: Operation) -> str:
    parts = []
    for each in fields(type(operation)):
        value = getattr(operation, each.name)
        if isinstance(value, Key):
            parts.append(_key_in_words(value))
        elif isinstance(value, Receipt):
            parts.append(f"receipt {value.receipt_id}")
        elif isinstance(value, Counts | Slots):
            parts.append(_slots_in_words(value))
        elif value != each.default:
            parts.append(f"{each.name.replace('_', ' ')} {value}")
    return f"{method_of(type(operation))}({'; '.join(parts)})"


def _slots_in_words(value: Counts | Slots) -> str:
    counts = value.counts() if isinstance(value, Slots) else value
    some = [f"{counts[each]} {each.value}" for each in Component if counts[each]]
    return ", ".join(some) or "no slots"


def _key_in_words(key: Key) -> str:
    """A prompt by its length and its first tokens."""
    first = key.pages[0][:SHOWN_TOKENS] if key.pages else ()
    pages = "1 page" if len(key) == 1 else f"{len(key)} pages"
    return f"{pages}: {' '.join(map(str, first))} ..." if first else pages
