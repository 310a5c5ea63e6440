"""Black-box guard of a request cache: judges it by the block tables that it returns.

It records what was computed in which slot, takes the events after every call, and checks the laws
of states if the cache has snapshots. Each check says what a law means for a block table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import TypeVar, cast

from kvcanon.conformance.errors import AnswerError, OnShould, ViolationError, raise_violations
from kvcanon.conformance.judge.answers import (
    ANSWER_LAW,
    answer_violation,
    outcome_of,
    require_answer,
)
from kvcanon.conformance.judge.explain import explain_violations, key_in_words
from kvcanon.conformance.judge.from_outside.checks import Checks, left_to
from kvcanon.conformance.judge.from_outside.request.checks import (
    check_contents,
    check_freed,
    check_owners,
    check_refused,
    check_reuse,
    computed_slots,
    table_of,
)
from kvcanon.conformance.judge.from_outside.request.events import EventChecker
from kvcanon.conformance.judge.from_outside.request.state import ObservedRequests, Prompt
from kvcanon.conformance.judge.judged_cache import Service
from kvcanon.conformance.judge.one_thread import OneThread
from kvcanon.conformance.protocol.adapter import CacheKind, RequestSubject
from kvcanon.conformance.protocol.request import Admitted, RequestId
from kvcanon.conformance.workers.notes import NOTE
from kvcanon.spec.config import CacheConfig, Choosing, Profile
from kvcanon.spec.errors import CacheBusy, CacheError, OutOfSlots
from kvcanon.spec.events import Event
from kvcanon.spec.law import Kind, Law, Need, judge
from kvcanon.spec.laws.ownership import owners_lost
from kvcanon.spec.operations import Evicted
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import GPU, Component, Counts, Key, Medium, Slot, Slots
from kvcanon.spec.views import PageNumber

Answer = TypeVar("Answer")


class RequestBlackboxGuard:
    """A request cache that is judged by its answers. `RequestCache` documents its methods."""

    def __init__(
        self,
        subject: RequestSubject,
        profile: Profile,
        laws: Collection[Law],
        on_should: OnShould | None = None,
        *,
        on_violation: OnShould | None = None,
        black_box: bool,
    ) -> None:
        self._on_should = on_should
        self._on_violation = on_violation
        """Gets all violations, in place of the caller of the cache."""
        self.service = Service()
        """How often each operation was served and refused."""
        self.steps = 0
        """How many operations were called."""
        self._one_thread = OneThread()
        self._cache = subject.cache
        self._shows = subject.shows - {Need.SNAPSHOT} if black_box else subject.shows
        self._state_laws = [
            law
            for law in laws
            if law.kind is Kind.STATE and law.needs <= self._shows and law.is_judged_under(profile)
        ]
        checks = Checks({law.law_id for law in laws}, left_to(profile, CacheKind.REQUEST))
        moves = self._cache.config.host_tier or profile.placement is Choosing.OWN
        self._seen = ObservedRequests(self._cache.config, checks, subject.one_pool, moves)
        self._events = EventChecker(self._seen, profile)
        self._bytes: dict[tuple[Component, PageNumber], bytes] = {}
        """The bytes that were written for a page, or for the mamba state at its end."""
        self._untaken: list[Event] = []
        """Events that the client has not taken yet."""
        self._last: Snapshot | None = None
        """The last state that was checked; None before the first."""
        self._begun = Need.EVENTS not in self._shows
        """Whether the events of the new cache were taken."""

    @property
    def judged(self) -> int:
        """How many operations were judged: all."""
        return self.steps

    @property
    def laws_exercised(self) -> Counter[str]:
        """How often each law was exercised, by id."""
        return self._seen.checks.laws_exercised

    @property
    def config(self) -> CacheConfig:
        """The configuration of the cache."""
        return self._cache.config

    def admit(self, request_id: RequestId, key: Key) -> Admitted:
        """Admit a request."""
        prompt = self._seen.prompt(key)

        def check(answer: Admitted) -> None:
            reused = answer.reused_pages
            check_reuse(self._seen, prompt, reused)
            if Need.EVENTS in self._shows:
                self._events.check_reuse(prompt, reused)
            self._check_table(request_id, prompt, answer.slots, reused)

        return self._judge(
            "admit",
            f"of request {request_id}, {key_in_words(key)}",
            lambda: self._cache.admit(request_id, key),
            check,
            lambda refusal: self._check_no_slots(request_id, prompt, refusal),
        )

    def extend(self, request_id: RequestId, key: Key) -> Slots:
        """Allocate slots for a running request's longer key."""
        prompt, running = self._seen.prompt(key), self._seen.running.get(request_id)

        def check(table: Slots) -> None:
            self._check_runs(request_id, "extend")
            if running is not None:
                self._check_table(request_id, prompt, table, len(running.prompt.key))

        return self._judge(
            "extend",
            f"of request {request_id} to {key_in_words(key)}",
            lambda: self._cache.extend(request_id, key),
            check,
            lambda refusal: self._check_no_slots(request_id, prompt, refusal),
            runs=running is not None,
        )

    def finish(self, request_id: RequestId) -> None:
        """End a request."""

        def check(_: object) -> None:
            if request_id in self._seen.running:
                self._seen.due.append(self._seen.running[request_id].prompt)
            self._end(request_id, "finish")

        self._judge(
            "finish",
            f"of request {request_id}",
            lambda: self._cache.finish(request_id),
            check,
            lambda refusal: self._check_end_refused(request_id, refusal),
            runs=request_id in self._seen.running,
        )

    def abort(self, request_id: RequestId) -> None:
        """End a request early."""
        self._judge(
            "abort",
            f"of request {request_id}",
            lambda: self._cache.abort(request_id),
            lambda _: self._end(request_id, "abort"),
            lambda refusal: self._check_end_refused(request_id, refusal),
            runs=request_id in self._seen.running,
        )

    def evict(self, counts: Counts) -> Evicted:
        """Free device slots."""

        def check(answer: Evicted) -> None:
            self._seen.note_evicted(answer.freed)
            check_freed(self._seen, counts, answer.freed)

        answer = self._judge(
            "evict",
            f"of {counts}",
            lambda: self._cache.evict(counts),
            check,
            lambda refusal: self._seen.check("REFUSE-1", f"an eviction was refused: {refusal}"),
        )
        at_rest = not self._seen.running and not self.config.host_tier
        if at_rest and counts.full and Need.EVENTS in self._shows:
            self._events.check_freed(answer.freed.full)
            self._raise_violations(f"evict of {counts}", answer)
        return answer

    def reset(self) -> None:
        """Forget everything but what running requests hold."""

        def refused(refusal: CacheError) -> None:
            # Copies in flight, which are not visible, also make the cache busy.
            held = bool(self._seen.running) or self.config.host_tier
            busy = isinstance(refusal, CacheBusy) and held
            text = None if busy else f"a reset was refused ({refusal}), and no request runs"
            self._seen.check("REFUSE-1", text)

        self._judge("reset", "", self._cache.reset, lambda _: self._seen.clear(), refused)

    def take_events(self) -> tuple[Event, ...]:
        """Return the events since the last call, which the guard took already."""
        taken = tuple(self._untaken)
        self._untaken.clear()
        return taken

    def snapshot(self) -> Snapshot:
        """Return the whole state, as a value."""
        return self._cache.snapshot()

    def read(self, component: Component, medium: Medium, slot: Slot) -> bytes:
        """Return the bytes of a slot."""
        return self._cache.read(component, medium, slot)

    def write(self, component: Component, slot: Slot, data: bytes) -> None:
        """Set the bytes of a slot of a running request."""
        self._cache.write(component, slot, data)
        for request in self._seen.running.values():
            number = request.table.get((component, slot))
            if number is not None:
                self._bytes[component, number] = data

    # Judging.

    def _judge(
        self,
        name: str,
        arguments: str,
        call: Callable[[], Answer],
        accepted: Callable[[Answer], None],
        refused: Callable[[CacheError], None],
        *,
        runs: bool = True,
    ) -> Answer:
        """Call, check the answer, the events and the state, and return or raise as the cache did.

        A refusal is not counted if the request does not run.
        """
        with self._one_thread:
            self.steps += 1
            NOTE.operation(name)
            return self._judge_alone(f"{name} {arguments}", call, accepted, refused, runs=runs)

    def _judge_alone(
        self,
        asked: str,
        call: Callable[[], Answer],
        accepted: Callable[[Answer], None],
        refused: Callable[[CacheError], None],
        *,
        runs: bool,
    ) -> Answer:
        name = asked.partition(" ")[0]
        try:
            self._begin()
        except AnswerError as wrong:
            raise self._finding_of(wrong, asked) from None
        refusal: CacheError | None = None
        answer: Answer | None = None
        try:
            try:
                answer = call()
            except CacheError as error:
                refusal = error
                self.service.refused[name] += runs
                refused(error)
            else:
                require_answer(name, answer)
                self.service.served[name] += 1
                accepted(answer)
            self._check_events_and_state(name, refused=refusal is not None)
            self._raise_violations(asked, refusal or answer)
        except AnswerError as wrong:
            self._seen.checks.close()
            self._report(self._finding_of(wrong, asked))
        if refusal is not None:
            raise refusal
        return cast("Answer", answer)

    def _begin(self) -> None:
        """Take the events of the new cache, before its first operation."""
        if not self._begun:
            self._begun = True
            self._untaken += self._take_events()

    def _finding_of(self, wrong: AnswerError, asked: str) -> ViolationError:
        """The finding of an answer of a wrong type. Raises: AnswerError: no law checks it."""
        if ANSWER_LAW not in self._seen.checks.law_ids:
            raise wrong
        return answer_violation(wrong, self.steps, asked)

    def _report(self, error: ViolationError) -> None:
        """Raise violations, or pass them on."""
        if self._on_violation is not None:
            self._on_violation(error)
        else:
            raise_violations(error, self._on_should)

    def _check_events_and_state(self, name: str, *, refused: bool) -> None:
        """Check the events and the state, as far as the cache shows them."""
        if Need.EVENTS in self._shows:
            events = self._take_events()
            self._untaken += events
            self._events.check_events(name, events, refused=refused)
        if Need.SNAPSHOT in self._shows:
            state = self._cache.snapshot()
            require_answer("snapshot", state)
            self._check_state(state)

    def _take_events(self) -> tuple[Event, ...]:
        events = self._cache.take_events()
        require_answer("take_events", events)
        return events

    def _check_state(self, state: Snapshot) -> None:
        """Check the laws of states, those of the tree's shape first."""
        broken = judge(state, self._state_laws)
        self._seen.checks.broken += broken
        before, self._last = self._last or state, state
        lost = None if broken else next(owners_lost(before, state), None)
        self._seen.check("ALLOC-8", lost, met=before.pools != state.pools)
        for law in () if broken else self._state_laws:
            self._seen.check(law.law_id, None, met=law.premise.is_met(state))

    def _check_table(
        self, request_id: RequestId, prompt: Prompt, slots: Slots, computed: int
    ) -> None:
        """Check the block table of a request, whose first `computed` pages are filled already."""
        seen = self._seen
        table = table_of(seen, prompt, slots)
        check_owners(seen, request_id, table)
        check_contents(seen, prompt, slots, computed)
        self._check_bytes(prompt, slots, computed)
        seen.note_demand(prompt)
        seen.compute(request_id, prompt, table, computed)

    def _check_bytes(self, prompt: Prompt, slots: Slots, pages: int) -> None:
        """Check the bytes of the slots of the first `pages`."""
        if Need.BYTES not in self._shows:
            return
        places = computed_slots(self._seen, prompt, slots, pages)
        for component, page, slot in places:
            expected = self._bytes.get((component, prompt.numbers[page]))
            if expected is None or not 0 <= slot < self.config.capacity(component, GPU):
                continue
            found = self._cache.read(component, GPU, slot)
            require_answer("read", found)
            self._seen.check(
                "DATA-1",
                f"page {page} of {key_in_words(prompt.key)} is said to be in {component} slot "
                f"{slot}, behind which is {found[:16].hex()}, not {expected[:16].hex()}, which was "
                "written for it"
                if found != expected
                else None,
            )

    def _check_no_slots(self, request_id: RequestId, prompt: Prompt, refusal: CacheError) -> None:
        """Check that running requests leave too few slots for a request that was refused."""
        if isinstance(refusal, OutOfSlots):
            check_refused(self._seen, request_id, prompt)
            self._seen.note_demand(prompt)
            self._seen.let_windows_go(request_id)
        elif request_id in self._seen.running:
            self._seen.check("REFUSE-1", f"request {request_id} runs, and was refused: {refusal}")

    def _end(self, request_id: RequestId, how: str) -> None:
        self._check_runs(request_id, how)
        self._seen.running.pop(request_id, None)

    def _check_end_refused(self, request_id: RequestId, refusal: CacheError) -> None:
        running = self._seen.running.pop(request_id, None)
        text = f"request {request_id} runs, and its end was refused: {refusal}"
        self._seen.check("REFUSE-1", text if running is not None else None)
        if running is None:
            self._seen.check("LOCK-10", None)

    def _check_runs(self, request_id: RequestId, how: str) -> None:
        running = request_id in self._seen.running
        text = None if running else f"{how} of request {request_id} was served, which does not run"
        self._seen.check("LOCK-10", text, met=False)

    def _raise_violations(self, call: str, answer: object) -> None:
        """Raise the violations of this operation. Raises: ViolationError."""
        found = self._seen.checks.close()
        if found:
            words = explain_violations(found, self.steps, call, repr(answer))
            self._report(ViolationError(words, found, call.partition(" ")[0], outcome_of(answer)))
