"""Plays a case on a store, and judges each call.

The player keeps what can be known of every page (`spec.stores.known`). A broken law does not end a
case: what may be given is known whatever the store answers, so later calls are judged as well.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from attrs import define, evolve, field

from kvcanon.conformance.stores.adapter import StoreAdapter, StoreGround
from kvcanon.conformance.stores.case import (
    AskPages,
    AskRun,
    ContinueServer,
    DamageFile,
    GetPages,
    KillInPut,
    LookAtMemory,
    PutAtOnce,
    PutOnFullDisk,
    PutPages,
    RemovePages,
    Restart,
    StopServer,
    StoreAction,
    StoreCase,
)
from kvcanon.conformance.stores.damage import damage_file
from kvcanon.conformance.stores.fitted import fitted
from kvcanon.conformance.stores.host import NO_INTERRUPT, Interrupt, StoreHost
from kvcanon.conformance.stores.hosts import LATE_SECONDS, Answer, Host, LocalHost, ProcessHost
from kvcanon.conformance.stores.knowledge import evicted_by, known_after
from kvcanon.conformance.stores.machine_time import NEVER_LATE, LateMachine, Watch, machine_watch
from kvcanon.conformance.stores.played import BrokenStoreLaw, Played, PlayedStep
from kvcanon.conformance.stores.prompts import PAGES, content_of, identity_of, keys_of, size_of
from kvcanon.spec.stores.calls import (
    Ability,
    Answered,
    ExistsCall,
    Failed,
    GetCall,
    Handle,
    Interruption,
    LookCall,
    OpenCall,
    PutCall,
    RemoveCall,
    RunCall,
    Situation,
    StoreCall,
    StoreStep,
    StoreTerms,
)
from kvcanon.spec.stores.findings import OVERHEAD_BYTES
from kvcanon.spec.stores.known import (
    Doubt,
    KnownPages,
    PageKnown,
    StoredName,
    after_crash,
    after_damage,
    after_doubt,
    after_race,
)
from kvcanon.spec.stores.pages import PageKey, StoreIdentity
from kvcanon.spec.stores.service import GRACE_SECONDS
from kvcanon.spec.stores.store_law import broken_by, exercised_by

_Puts = PutPages | KillInPut | PutOnFullDisk | PutAtOnce

WAIT_SECONDS = 20.0
"""How long the judge waits for an answer while nothing is stopped."""
BLOCKED_SECONDS = 1.0
"""How long a second writer may wait for one that is stopped half-way, before that goes on."""
DEADLINE_IF_NONE = 2.0
"""How long a call to a stopped store is waited for that promises no deadline."""
SLOW_SHARE, LATE_SHARE = 0.5, 0.25
"""A store may have given up a call that took so much of its deadline, and the machine was the
reason if it was late by so much of it meanwhile."""
CALM_TRIES = 4
"""How often a case is played until the machine was no reason for what it shows."""
CALM_SECONDS = 0.5
"""The pause before the second of them; it doubles each time."""


def play_case(
    adapter: StoreAdapter, ground: StoreGround, case: StoreCase, watch: Watch = machine_watch
) -> Played:
    """Play a case on an empty store.

    Where the store promises a deadline and the machine was too late to judge it, the case is played
    again.
    """
    machine = NEVER_LATE if adapter.offer.deadline_seconds is None else watch()
    pause = CALM_SECONDS
    for number in range(CALM_TRIES):
        played = _play_once(adapter, ground, case, machine)
        if not played.doubted or number + 1 == CALM_TRIES:
            break
        time.sleep(pause)
        pause *= 2
    return played


def _play_once(
    adapter: StoreAdapter, ground: StoreGround, case: StoreCase, machine: LateMachine
) -> Played:
    """Play a case once."""
    player = _Player(adapter, ground, fitted(case, adapter.offer), machine)
    ground.empty()
    try:
        player.begin()
        for number, action in enumerate(case.actions):
            player.number = number
            _DO[type(action)](player, action)
        player.number = len(case.actions)
        player.drain()
    except _NotOpened:
        pass  # That is judged; nothing else of the case can be.
    finally:
        player.finish()
    if player.was_late:
        player.played.doubt()
    return player.played


class _NotOpened(Exception):
    """A store cannot be opened, so that the case is over."""


@define(eq=False)
class _Closed:
    """A writer that does not have the store open."""

    def call(
        self,
        call: StoreCall,
        identity: StoreIdentity,
        wait_seconds: float,
        interrupt: Interrupt = NO_INTERRUPT,
    ) -> Answer | None:
        """No call is made."""
        raise NotImplementedError

    def proceed(self, wait_seconds: float) -> Answer:
        """Nothing waits."""
        raise NotImplementedError

    def end(self) -> None:
        """Nothing is open."""


@define(eq=False)
class _Player:
    """A case while it is played."""

    adapter: StoreAdapter
    ground: StoreGround
    case: StoreCase
    machine: LateMachine
    played: Played = field(factory=Played)
    known: KnownPages = field(factory=KnownPages)
    hosts: list[Host] = field(factory=list)
    handles: list[Handle] = field(factory=list)
    situation: Situation = field(factory=Situation)
    timeouts: dict[int, tuple[float, ...]] = field(factory=dict)
    number: int = 0
    lives: int = 0
    was_late: bool = False
    """Whether the machine was late in a call by so much that the store may have given it up."""

    # What the store is.

    @property
    def abilities(self) -> frozenset[Ability]:
        return self.adapter.offer.abilities

    def keys(
        self, identity: StoreIdentity, prompt: int, first: int, count: int, *, pools: int = 0
    ) -> tuple[PageKey, ...]:
        """Consecutive pages of a prompt in all pools, or in one."""
        return keys_of(identity, prompt, first, count, pools=pools, stretch=self.case.stretch)

    @property
    def capacity_bytes(self) -> int | None:
        pages = self.case.capacity_pages
        if not pages or Ability.EVICTS not in self.abilities:
            return None
        page = 2 * self.case.page_bytes + OVERHEAD_BYTES
        offer = self.adapter.offer
        return offer.slack_bytes + max(offer.least_capacity_bytes, pages * page)

    @property
    def terms(self) -> StoreTerms:
        offer = self.adapter.offer
        return StoreTerms(
            self.abilities, offer.deadline_seconds, self.capacity_bytes, offer.slack_bytes
        )

    def writer_of(self, pick: int) -> int:
        return pick % len(self.hosts)

    def pages_of(
        self, writer: int, action: _Puts, version: int
    ) -> tuple[tuple[PageKey, bytes], ...]:
        identity = self.handles[writer].identity
        pools = action.pools if isinstance(action, PutPages) else 0
        keys = self.keys(identity, action.prompt, action.first, action.count, pools=pools)
        return tuple(
            (key, content_of(identity, key, size_of(self.case, identity, key.pool), version))
            for key in keys
        )

    # Opening and closing.

    def begin(self) -> None:
        """Open the store for all writers."""
        for writer in range(self.case.writers):
            self.handles.append(Handle(writer, identity_of(self.case, writer), 0))
            self.hosts.append(_Closed())
        for writer in range(1 if self.alone else self.case.writers):
            self.reopen(writer)

    @property
    def durable(self) -> bool:
        return Ability.DURABLE in self.abilities

    @property
    def apart(self) -> bool:
        """Whether each writer has a process of its own: files are limited by process."""
        return self.durable or Ability.FILES in self.abilities

    @property
    def alone(self) -> bool:
        """Whether one writer has the store open at a time."""
        return self.durable and Ability.SHARED not in self.abilities

    def turn_to(self, writer: int) -> None:
        """Let a writer have the store open."""
        if isinstance(self.hosts[writer], _Closed):
            self.reopen(writer)

    def new_host(self) -> Host:
        if self.apart:
            return ProcessHost.start(self.ground, self.capacity_bytes)
        return LocalHost(StoreHost(self.ground, self.capacity_bytes))

    def open(self, writer: int, after: str = "") -> None:
        """Open the store of a writer, in a new process where it has one."""
        self.lives += 1
        self.handles[writer] = evolve(self.handles[writer], life=self.lives)
        if isinstance(self.call(writer, OpenCall(after)), Failed):
            raise _NotOpened

    def reopen(self, writer: int, after: str = "") -> None:
        """End the store of a writer, and open it again; of all writers, where one has it alone."""
        for other, host in enumerate(self.hosts):
            if self.alone or other == writer:
                host.end()
                self.hosts[other] = _Closed()
        self.hosts[writer] = self.new_host()
        self.open(writer, after)

    def finish(self) -> None:
        """End all that runs."""
        if self.situation.stalled:
            self.ground.resume()
        for host in self.hosts:
            host.end()

    # Calls.

    def call(
        self, writer: int, call: StoreCall, interrupt: Interrupt = NO_INTERRUPT
    ) -> Answered | Failed:
        """Make a call, judge it and note what is known now."""
        self.turn_to(writer)
        heard = self.ask(writer, call, interrupt)
        answer, seconds = heard if heard is not None else (Failed("was stopped"), 0.0)
        return self.judge(writer, call, answer, seconds)

    def ask(
        self, writer: int, call: StoreCall, interrupt: Interrupt = NO_INTERRUPT
    ) -> Answer | None:
        wait = WAIT_SECONDS
        if self.situation.stalled:
            wait = (self.adapter.offer.deadline_seconds or DEADLINE_IF_NONE) + 2 * GRACE_SECONDS
        before = self.machine.late_seconds()
        heard = self.hosts[writer].call(call, self.handles[writer].identity, wait, interrupt)
        if heard is None:
            return None
        answer, seconds = heard
        late = self.machine.late_seconds() - before
        if self.situation.stalled:
            return answer, max(0.0, seconds - late)
        deadline = self.adapter.offer.deadline_seconds
        if deadline is not None:
            self.was_late |= seconds > SLOW_SHARE * deadline and late > LATE_SHARE * deadline
        return heard

    def judge(
        self, writer: int, call: StoreCall, answer: Answered | Failed, seconds: float
    ) -> Answered | Failed:
        situation = evolve(self.situation, timeouts=self.timeouts.get(writer, ()))
        step = StoreStep(
            self.handles[writer],
            call,
            answer,
            self.known,
            self.terms,
            seconds,
            situation,
            judges_time=not isinstance(call, LookCall),
        )
        self.played.met.update(law.law_id for law in exercised_by(step))
        self.played.broken += [
            BrokenStoreLaw(law, words, self.number, len(self.played.steps))
            for law, words in broken_by(step)
        ]
        self.played.steps.append(PlayedStep(writer, call, answer, self.note(step)))
        self.known = known_after(step)
        if situation.stalled and not isinstance(call, LookCall):
            self.timeouts[writer] = (*situation.timeouts, seconds)
        if isinstance(answer, Failed) and not isinstance(call, OpenCall):
            self.recover(writer, answer)
        return answer

    def note(self, step: StoreStep) -> str:
        return f"{step.seconds:.2f} s, the server is stopped" if step.situation.stalled else ""

    def recover(self, writer: int, failed: Failed) -> None:
        """After a call without an answer: let a stopped server go on, and start a dead process."""
        if failed.silent and self.situation.stalled:
            self.ground.resume()
            self.hosts[writer].proceed(LATE_SECONDS)
            self.situation = Situation(recovering=True, damaged=self.situation.damaged)
        elif failed.silent or "ended its process" in failed.words:
            after = "its process was killed" if failed.killed else f"a call {failed.words}"
            self.crash()
            if not self.durable:
                self.lose()
            self.reopen(writer, after)

    def lose(self) -> None:
        """Note that a store which is not durable was closed: what it keeps is its own affair."""
        self.known = self.known.changed(
            (name, after_doubt(known, Doubt.LOST)) for name, known in self.known.pages.items()
        )

    def crash(self) -> None:
        self.known = self.known.changed(
            (name, after_crash(known)) for name, known in self.known.pages.items()
        )

    # Actions.

    def put(self, action: PutPages) -> None:
        writer = self.writer_of(action.writer)
        self.call(writer, PutCall(self.pages_of(writer, action, action.version)))

    def get(self, action: GetPages) -> None:
        writer = self.writer_of(action.writer)
        identity = self.handles[writer].identity
        keys = self.keys(identity, action.prompt, action.first, action.count)
        sizes = [size_of(self.case, identity, key.pool) for key in keys]
        if action.buffers % 3:
            sizes[0] = sizes[0] // 2 if action.buffers % 3 == 1 else sizes[0] * 2
        self.call(writer, GetCall(keys, tuple(sizes)))

    def exists(self, action: AskPages) -> None:
        writer = self.writer_of(action.writer)
        identity = self.handles[writer].identity
        self.call(
            writer, ExistsCall(self.keys(identity, action.prompt, action.first, action.count))
        )

    def run(self, action: AskRun) -> None:
        if Ability.RUNS in self.abilities:
            writer = self.writer_of(action.writer)
            identity = self.handles[writer].identity
            self.call(writer, RunCall(self.keys(identity, action.prompt, 0, action.count, pools=1)))

    def remove(self, action: RemovePages) -> None:
        if Ability.REMOVES in self.abilities:
            writer = self.writer_of(action.writer)
            identity = self.handles[writer].identity
            keys = self.keys(identity, action.prompt, action.first, action.count)
            self.call(writer, RemoveCall(keys))

    def restart(self, action: Restart) -> None:
        if not self.durable:
            self.lose()
        if not self.situation.stalled:
            self.reopen(self.writer_of(action.writer))

    def kill(self, action: KillInPut) -> None:
        writer = self.writer_of(action.writer)
        pages = self.pages_of(writer, action, action.version)
        if not self.durable:
            self.call(writer, PutCall(pages))
            return
        interrupt = Interrupt(signal.SIGKILL, 1 + action.at_call)
        self.call(writer, PutCall(pages, Interruption.KILLED), interrupt)

    def put_on_full_disk(self, action: PutOnFullDisk) -> None:
        writer = self.writer_of(action.writer)
        pages = self.pages_of(writer, action, action.version)
        if Ability.FILES not in self.abilities:
            self.call(writer, PutCall(pages))
            return
        most = max(len(content) for _, content in pages) * (action.most % 9) // 8
        self.call(writer, PutCall(pages, Interruption.WRITES_FAIL), Interrupt(most_bytes=most))

    def damage(self, action: DamageFile) -> None:
        """Damage a file of a page that was put, while nothing has it open that would find it again.

        A store that is not durable forgets its pages when it is closed, so it stays open.
        """
        if Ability.FILES not in self.abilities or self.situation.stalled:
            return
        names = list(self.known.pages)
        if not names:
            return
        identity, key = names[(action.prompt * PAGES + action.page) % len(names)]
        paths = self.ground.files_of(identity, key)
        if not paths:
            return
        opened = self.opened() if self.durable else []
        for writer in opened:
            self.hosts[writer].end()
        path = paths[action.place % len(paths)]
        harmed = self.pages_in(path)
        words = damage_file(path, action.kind, action.place)
        if self.durable:
            self.crash()
        self.known = self.known.changed(
            (name, after_damage(self.known.pages[name], words)) for name in harmed
        )
        self.situation = evolve(self.situation, damaged=True)
        for writer in opened:
            self.reopen(writer, words)

    def pages_in(self, path: Path) -> list[StoredName]:
        return [
            (identity, key)
            for identity, key in self.known.pages
            if path in self.ground.files_of(identity, key)
        ]

    def put_at_once(self, action: PutAtOnce) -> None:
        """Stop a writer half-way in a put, let another put the same pages, then let it go on."""
        one = self.writer_of(action.writer)
        twins = [
            writer
            for writer, handle in enumerate(self.handles)
            if writer != one and not self.alone and handle.identity == self.handles[one].identity
        ]
        first = PutCall(self.pages_of(one, action, 0), Interruption.OVERTAKEN)
        if not (self.apart and twins) or self.situation.stalled:
            self.call(one, first)
            return
        second = evolve(first, pages=self.pages_of(one, action, 1))
        heard = self.ask(one, first, Interrupt(signal.SIGSTOP, 1 + action.at_call))
        if heard is not None:
            self.judge(one, first, *heard)
            self.call(twins[0], second)
            return
        other = self.hosts[twins[0]].call(second, self.handles[twins[0]].identity, BLOCKED_SECONDS)
        answers = [self.hosts[one].proceed(WAIT_SECONDS)]
        if other is None or (isinstance(other[0], Failed) and other[0].silent):
            other = self.hosts[twins[0]].proceed(WAIT_SECONDS)
        answers.append(other)
        self.note_race((one, twins[0]), (first, second), answers)

    def note_race(
        self, writers: Sequence[int], calls: Sequence[PutCall], answers: Sequence[Answer]
    ) -> None:
        before, races = self.known, dict[StoredName, PageKnown]()
        for writer, call, (answer, seconds) in zip(writers, calls, answers, strict=True):
            self.judge(writer, call, answer, seconds)
        identity = self.handles[writers[0]].identity
        done = [
            answer.value if isinstance(answer, Answered) and isinstance(answer.value, tuple) else ()
            for answer, _ in answers
        ]
        for at, ((key, one), (_, two)) in enumerate(
            zip(calls[0].pages, calls[1].pages, strict=True)
        ):
            known = before.of(identity, key)
            won = any(at < len(each) and each[at] is True for each in done)
            races[identity, key] = after_race(known, (two, one), self.lives, done=won)
        self.known = self.known.changed(races.items())
        self.doubt_evicted(calls[1])

    def stop(self, action: StopServer) -> None:  # noqa: ARG002  # There is nothing to pick.
        if Ability.STALLS in self.abilities and not self.situation.stalled:
            self.ground.stall()
            self.timeouts = {}
            self.situation = Situation(stalled=True, damaged=self.situation.damaged)

    def proceed(self, action: ContinueServer) -> None:  # noqa: ARG002
        if self.situation.stalled or self.situation.recovering:
            if self.situation.stalled:
                self.ground.resume()
            time.sleep(self.adapter.offer.recovers_seconds)
            self.situation = Situation(resumed=True, damaged=self.situation.damaged)

    def look(self, action: LookAtMemory) -> None:  # noqa: ARG002
        if self.situation.stalled:
            return
        if Ability.EVICTS in self.abilities and self.capacity_bytes is not None:
            identity = self.handles[0].identity
            keys = sorted(
                (key for key, known in self.known.put_under(identity) if key.pool == "kv"),
                key=lambda key: (str(key.namespace), key.tokens),
            )
            if keys:
                self.call(0, ExistsCall(tuple(keys), census=True))
        for writer in self.opened():
            self.call(writer, LookCall())

    def drain(self) -> None:
        """Ask for all pages that were put, and get each, by every writer."""
        self.proceed(ContinueServer())
        asked: set[StoreIdentity] = set()
        for writer, handle in enumerate(self.handles):
            keys = [key for key, _ in self.known.put_under(handle.identity)]
            if not keys:
                continue
            self.call(writer, ExistsCall(tuple(keys)))
            for key in () if handle.identity in asked else keys:
                size = size_of(self.case, handle.identity, key.pool)
                self.call(writer, GetCall((key,), (size,)))
            asked.add(handle.identity)

    def opened(self) -> list[int]:
        """The writers that have the store open."""
        return [at for at, host in enumerate(self.hosts) if not isinstance(host, _Closed)]

    def doubt_evicted(self, call: PutCall) -> None:
        """Note that a put may have evicted pages."""
        step = StoreStep(self.handles[0], call, Answered(()), self.known, self.terms)
        self.known = evicted_by(step, self.known)


_DO: dict[type[StoreAction], Callable[[_Player, StoreAction], None]] = {
    PutPages: _Player.put,  # type: ignore[dict-item]
    GetPages: _Player.get,  # type: ignore[dict-item]
    AskPages: _Player.exists,  # type: ignore[dict-item]
    AskRun: _Player.run,  # type: ignore[dict-item]
    RemovePages: _Player.remove,  # type: ignore[dict-item]
    Restart: _Player.restart,  # type: ignore[dict-item]
    KillInPut: _Player.kill,  # type: ignore[dict-item]
    PutOnFullDisk: _Player.put_on_full_disk,  # type: ignore[dict-item]
    DamageFile: _Player.damage,  # type: ignore[dict-item]
    PutAtOnce: _Player.put_at_once,  # type: ignore[dict-item]
    StopServer: _Player.stop,  # type: ignore[dict-item]
    ContinueServer: _Player.proceed,  # type: ignore[dict-item]
    LookAtMemory: _Player.look,  # type: ignore[dict-item]
}
