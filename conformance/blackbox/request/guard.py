"""Black-box guard of a request cache: judges it by the block tables that it gives out.

It records what was computed in which slot, takes the events after every call, and checks state laws
where the cache shows its state. The law ids are those of the book: each check states what the law
means for a block table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import TypeVar

from kvcanon.conformance.blackbox.checks import Checks
from kvcanon.conformance.blackbox.request.events import EventChecker
from kvcanon.conformance.blackbox.request.state import (
    ObservedRequests,
    Prompt,
    check_contents,
    check_freed,
    check_owners,
    check_refused,
    check_reuse,
    computed_slots,
    table_of,
)
from kvcanon.conformance.errors import OnShould, ViolationError
from kvcanon.conformance.observe.evidence import Service
from kvcanon.conformance.observe.explain import explain_violations
from kvcanon.conformance.protocol.adapter import RequestSubject
from kvcanon.conformance.protocol.request import Admitted, RequestId
from kvcanon.spec.config import CacheConfig, Profile
from kvcanon.spec.errors import CacheBusy, CacheError, OutOfSlots
from kvcanon.spec.events import Event
from kvcanon.spec.law import Kind, Law, Need, judge
from kvcanon.spec.operations import Evicted
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import GPU, Component, Counts, Key, Medium, Slot, Slots
from kvcanon.spec.views import PageNumber

Answer = TypeVar("Answer")


class RequestBlackboxGuard:
    """A cache that is judged by its answers to requests. Its methods are those of the cache."""

    def __init__(
        self,
        subject: RequestSubject,
        profile: Profile,
        laws: Collection[Law],
        on_should: OnShould | None = None,
        *,
        black_box: bool,
    ) -> None:
        self._on_should = on_should
        self.service = Service()
        """Which operations were served."""
        self.steps = 0
        """Operations that were called."""
        self._cache = subject.cache
        self._shows = subject.shows - {Need.SNAPSHOT} if black_box else subject.shows
        self._state_laws = [
            law for law in laws if law.kind is Kind.STATE and law.needs <= self._shows
        ]
        asked = {law.law_id for law in laws}
        self._seen = ObservedRequests(self._cache.config, Checks(asked), subject.one_pool)
        self._hearing = EventChecker(self._seen, profile)
        self._bytes: dict[tuple[Component, PageNumber], bytes] = {}
        """What was written for a page, or for the state at its end."""
        self._untaken: list[Event] = []
        """Events that the client has not taken yet."""
        if Need.EVENTS in self._shows:
            self._untaken += self._cache.take_events()

    @property
    def laws_exercised(self) -> Counter[str]:
        """How often each law was exercised, by id."""
        return self._seen.checks.laws_exercised

    @property
    def config(self) -> CacheConfig:
        """What the cache was asked to be."""
        return self._cache.config

    def admit(self, request_id: RequestId, key: Key) -> Admitted:
        """Let a request in."""
        prompt = self._seen.prompt(key)

        def check(answer: Admitted) -> None:
            reused = answer.reused_pages
            check_reuse(self._seen, prompt, reused)
            if Need.EVENTS in self._shows:
                self._hearing.check_reuse(prompt, reused)
            self._given(request_id, prompt, answer.slots, reused)

        return self._judged(
            ("admit", f"of request {request_id}, {_in_words(key)}"),
            lambda: _typed(Admitted, self._cache.admit(request_id, key)),
            check,
            lambda refusal: self._no_room(request_id, prompt, refusal),
        )

    def extend(self, request_id: RequestId, key: Key) -> Slots:
        """Make room for the longer key that a running request has grown to."""
        prompt, running = self._seen.prompt(key), self._seen.running.get(request_id)

        def check(table: Slots) -> None:
            self._must_run(request_id, "extend")
            if running is not None:
                self._given(request_id, prompt, table, len(running.prompt.key))

        return self._judged(
            ("extend", f"of request {request_id} to {_in_words(key)}"),
            lambda: _typed(Slots, self._cache.extend(request_id, key)),
            check,
            lambda refusal: self._no_room(request_id, prompt, refusal),
            runs=running is not None,
        )

    def finish(self, request_id: RequestId) -> None:
        """End a request."""

        def check(_: object) -> None:
            if request_id in self._seen.running:
                self._seen.due.append(self._seen.running[request_id].prompt)
            self._ended(request_id, "finish")

        self._judged(
            ("finish", f"of request {request_id}"),
            lambda: self._cache.finish(request_id),
            check,
            lambda refusal: self._not_ended(request_id, refusal),
            runs=request_id in self._seen.running,
        )

    def abort(self, request_id: RequestId) -> None:
        """End a request before its time."""
        self._judged(
            ("abort", f"of request {request_id}"),
            lambda: self._cache.abort(request_id),
            lambda _: self._ended(request_id, "abort"),
            lambda refusal: self._not_ended(request_id, refusal),
            runs=request_id in self._seen.running,
        )

    def evict(self, counts: Counts) -> Evicted:
        """Free device slots."""

        def check(answer: Evicted) -> None:
            self._seen.due.clear()
            check_freed(self._seen, counts, answer.freed)

        answer = self._judged(
            ("evict", f"of {counts}"),
            lambda: _typed(Evicted, self._cache.evict(counts)),
            check,
            lambda refusal: self._seen.check("REFUSE-1", f"an eviction was refused: {refusal}"),
        )
        at_rest = not self._seen.running and not self.config.host_tier
        if at_rest and counts.full and Need.EVENTS in self._shows:
            self._hearing.check_freed(answer.freed.full)
            self._raise_what_is_broken(f"evict of {counts}", answer)
        return answer

    def reset(self) -> None:
        """Forget all but what running requests hold."""

        def refused(refusal: CacheError) -> None:
            # Copies in flight hold the cache, too, and are not seen.
            held = bool(self._seen.running) or self.config.host_tier
            busy = isinstance(refusal, CacheBusy) and held
            text = None if busy else f"a reset was refused ({refusal}), and no request runs"
            self._seen.check("REFUSE-1", text)

        self._judged(("reset", ""), self._cache.reset, lambda _: self._seen.clear(), refused)

    def take_events(self) -> tuple[Event, ...]:
        """The events since the last call; the cache was asked for them already."""
        taken = tuple(self._untaken)
        self._untaken.clear()
        return taken

    def snapshot(self) -> Snapshot:
        """The whole state, as a value."""
        return self._cache.snapshot()

    def read(self, component: Component, medium: Medium, slot: Slot) -> bytes:
        """The bytes behind a slot."""
        return self._cache.read(component, medium, slot)

    def write(self, component: Component, slot: Slot, data: bytes) -> None:
        """Set the bytes behind a slot of a running request."""
        self._cache.write(component, slot, data)
        for request in self._seen.running.values():
            number = request.table.get((component, slot))
            if number is not None:
                self._bytes[component, number] = data

    # Judging.

    def _judged(
        self,
        asked: tuple[str, str],
        call: Callable[[], Answer],
        accepted: Callable[[Answer], None],
        refused: Callable[[CacheError], None],
        *,
        runs: bool = True,
    ) -> Answer:
        """Call, look at the answer, the events and the state, and answer as the cache did.

        A refusal is none of service where the request does not run that is spoken of.
        """
        self.steps += 1
        name, words = asked
        try:
            answer = call()
        except CacheError as refusal:
            self.service.refused[name] += runs
            refused(refusal)
            self._look(name, refused=True)
            self._raise_what_is_broken(f"{name} {words}", refusal)
            raise
        self.service.served[name] += 1
        accepted(answer)
        self._look(name, refused=False)
        self._raise_what_is_broken(f"{name} {words}", answer)
        return answer

    def _look(self, asked: str, *, refused: bool) -> None:
        """Hear what was sent, and see the state, as far as they are shown."""
        if Need.EVENTS in self._shows:
            events = self._cache.take_events()
            self._untaken += events
            self._hearing.hear(asked, events, refused=refused)
        if Need.SNAPSHOT in self._shows:
            self._see(self._cache.snapshot())

    def _see(self, state: Snapshot) -> None:
        """Ask the laws of states, and those of the tree's shape before them."""
        broken = judge(state, self._state_laws)
        self._seen.checks.broken += broken
        for law in () if broken else self._state_laws:
            self._seen.check(law.law_id, None, met=law.premise.is_met(state))

    def _given(self, request_id: RequestId, prompt: Prompt, slots: Slots, computed: int) -> None:
        """A request has a block table, of which the first pages must be filled already."""
        seen = self._seen
        table = table_of(seen, prompt, slots)
        check_owners(seen, request_id, table)
        check_contents(seen, prompt, slots, computed)
        self._check_bytes(prompt, slots, computed)
        seen.make_room(prompt)
        seen.compute(request_id, prompt, table, computed)

    def _check_bytes(self, prompt: Prompt, slots: Slots, pages: int) -> None:
        """Behind the slots of the first pages are the bytes that were written for them."""
        if Need.BYTES not in self._shows:
            return
        places = computed_slots(self._seen, prompt, slots, pages)
        for component, page, slot in places:
            expected = self._bytes.get((component, prompt.numbers[page]))
            if expected is None or not 0 <= slot < self.config.capacity(component, GPU):
                continue
            found = self._cache.read(component, GPU, slot)
            self._seen.check(
                "DATA-1",
                f"page {page} is said to be in {component} slot {slot}, behind which is "
                f"{found[:16].hex()}, not {expected[:16].hex()}, which was written for it"
                if found != expected
                else None,
            )

    def _no_room(self, request_id: RequestId, prompt: Prompt, refusal: CacheError) -> None:
        """A request was not let in, or not extended."""
        if isinstance(refusal, OutOfSlots):
            check_refused(self._seen, request_id, prompt)
            self._seen.make_room(prompt)
            self._seen.let_windows_go(request_id)
        elif request_id in self._seen.running:
            self._seen.check("REFUSE-1", f"request {request_id} runs, and was refused: {refusal}")

    def _ended(self, request_id: RequestId, how: str) -> None:
        self._must_run(request_id, how)
        self._seen.running.pop(request_id, None)

    def _not_ended(self, request_id: RequestId, refusal: CacheError) -> None:
        running = self._seen.running.pop(request_id, None)
        text = f"request {request_id} runs, and could not end: {refusal}"
        self._seen.check("REFUSE-1", text if running is not None else None)
        if running is None:
            self._seen.check("LOCK-10", None)

    def _must_run(self, request_id: RequestId, how: str) -> None:
        running = request_id in self._seen.running
        text = None if running else f"{how} of request {request_id}, which does not run, was done"
        self._seen.check("LOCK-10", text, met=False)

    def _raise_what_is_broken(self, asked: str, answer: object) -> None:
        """Raise the violations of this operation. Raises: ViolationError."""
        found = self._seen.checks.close()
        if not found:
            return
        words = explain_violations(found, self.steps, asked, repr(answer))
        broken = ViolationError(words, found)
        if self._on_should is None or not broken.only_should:
            raise broken
        self._on_should(broken)


def _typed(kind: type[Answer], answer: object) -> Answer:
    """An answer of the kind that it must be. Raises: TypeError."""
    if not isinstance(answer, kind):
        raise TypeError(f"an answer was {answer!r}, which is no {kind.__name__}")
    return answer


def _in_words(key: Key) -> str:
    """A key, short enough to read."""
    more = ", ..." if len(key) > 12 else ""
    pages = ", ".join(str(page) for page in key.pages[:12])
    return f"{len(key)} pages of {key.namespace}: {pages}{more}"
