"""Plays a case: clients call judged caches side by side until the case ends or each has failed.

Each cache has its own client. After the first difference, two caches may get different calls, and
each is judged by the calls that it got.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from attrs import evolve, frozen

from kvcanon.conformance.cases.actions import act
from kvcanon.conformance.cases.case import Action, Case
from kvcanon.conformance.cases.client import NAMESPACES, Client, Stamps
from kvcanon.conformance.check.memory_growth import LASTING_SECONDS, MemoryWatch, is_lasting
from kvcanon.conformance.check.result import Finding, Grounds, Tally
from kvcanon.conformance.check.time_limit import LIMIT, is_users_interrupt, made_in_time, within
from kvcanon.conformance.errors import (
    AnswerError,
    CacheSilent,
    CaseTooSlow,
    OnExcused,
    UsageError,
    ViolationError,
    describe_exception,
    explain_exception,
)
from kvcanon.conformance.judge import (
    ALL_JUDGES,
    BlackboxGuard,
    GuardedCache,
    JudgeConfig,
    Recorder,
    first_difference,
    make_judged,
    make_judged_requests,
)
from kvcanon.conformance.protocol.adapter import (
    Adapter,
    CacheKind,
    RequestSubject,
    StoreControl,
    Subject,
    Unoffered,
)
from kvcanon.conformance.protocol.drawn_config import is_large
from kvcanon.conformance.workers.notes import NOTE
from kvcanon.spec.cache import Cache
from kvcanon.spec.errors import BadArgument, CacheError
from kvcanon.spec.types import DEFAULT_NAMESPACE, Component, Namespace
from kvcanon.spec.views import PageNumbers

if TYPE_CHECKING:
    from kvcanon.conformance.cases.request_client import RequestClient
    from kvcanon.conformance.judge import RequestBlackboxGuard

# Clients.


class ClientFactory:
    """Makes the client of each cache of a case. A subclass can observe every call of a client."""

    def tree_client(
        self, cache: Cache, subject: Subject, stamps: Stamps, namespaces: tuple[Namespace, ...]
    ) -> Client:
        """Make a client that calls `cache`, which judges or records the calls of a subject."""
        on_ranks = subject.ranks is not None
        return Client(cache, subject.can, subject.copies, stamps, namespaces, on_ranks)

    def store_of(self, subject: Subject) -> StoreControl | None:
        """The control of the store below a subject."""
        return subject.store

    def request_client(
        self,
        cache: RequestBlackboxGuard,
        subject: RequestSubject,
        stamps: Stamps,
        namespaces: tuple[Namespace, ...],
    ) -> RequestClient:
        """Make a client of requests, as `tree_client` makes one of a tree."""
        from kvcanon.conformance.cases.request_client import RequestClient  # noqa: PLC0415  # As above.

        return RequestClient(cache, subject.can, stamps, namespaces)


def namespaces_of(adapter: Adapter, case: Case) -> tuple[Namespace, ...]:
    """The namespaces of the keys that a client uses."""
    several = adapter.offer.namespaces and not case.one_namespace
    return NAMESPACES if several else (DEFAULT_NAMESPACE,)


# A case on one cache.


def _most_seconds(case: Case) -> float | None:
    """The seconds that a case may take before it is left, if it is large or lasting."""
    if is_lasting(case):
        return LASTING_SECONDS
    return LIMIT.action.usual if is_large(case.config) else None


@frozen
class KeptAnswers:
    """How the answers of a run are kept, to compare them with those of another."""

    folded: bool
    """Whether only what the events of an answer come to is kept, and no transfers."""
    is_model: bool = False
    """Whether the cache is the one that the others must agree with."""


class CaseRun:
    """One cache in one case, up to the first finding that ends it."""

    def __init__(
        self,
        adapter: Adapter,
        case: Case,
        judges: JudgeConfig,
        *,
        stamps: Stamps | None = None,
        kept: KeptAnswers | None = None,
        clients: ClientFactory | None = None,
    ) -> None:
        """Make the cache of a case, its judge and its client. Raises: as `make_subject`.

        The caller makes the actions, and drains. Clients whose caches are compared share their
        `stamps`. `clients` makes the client, and so may observe its calls.
        """
        self.name = adapter.name
        self._case, config, judges = case, case.config, judges.of_case(case)
        self.finding: Finding | None = None
        self.unkept: Finding | None = None
        """The first finding of broken SHOULD laws alone; it does not end the case."""
        self.too_slow = False
        """Whether the case was left, as it is large and takes too long."""
        self._known = judges.known
        self._known_broken: set[str] = set()
        """The known laws that were broken; they do not end the case."""
        self.recorder: Recorder | None = None
        self._judge: GuardedCache | BlackboxGuard | RequestBlackboxGuard
        self.client: Client | RequestClient
        self._is_model = kept is not None and kept.is_model
        self._actions = 0
        self._at = 0
        """Index of the current or last action."""
        factory, namespaces = clients or ClientFactory(), namespaces_of(adapter, case)
        stamps = stamps or Stamps(config.slot_bytes)
        on_should = None
        if not judges.ends_at_should:
            on_should = OnExcused(self._note_excused, judges.known)
        NOTE.step(0, 0, compared=self._is_model)
        self._memory = MemoryWatch(case)
        NOTE.large_case(_most_seconds(case))
        if adapter.kind is CacheKind.REQUEST:
            from kvcanon.conformance.cases import request_client  # noqa: PLC0415  # As above.

            request_subject, judge = made_in_time(
                lambda: make_judged_requests(adapter, config, judges, on_should)
            )
            self._judge = judge
            by_requests = factory.request_client(judge, request_subject, stamps, namespaces)
            self.client = by_requests
            self._do = partial(request_client.act_by_requests, by_requests)
            return
        subject, self._judge = made_in_time(lambda: make_judged(adapter, config, judges, on_should))
        cache: Cache = self._judge
        if kept is not None:
            cache = self.recorder = Recorder(cache, folding=kept.folded)
        client = factory.tree_client(cache, subject, stamps, namespaces)
        client.states_within, client.store = subject.states_within, factory.store_of(subject)
        self.client, self._do = client, partial(act, client)

    @property
    def over(self) -> bool:
        """Whether there is a finding, or the case takes too long."""
        return self.finding is not None or self.too_slow

    def act(self, action: Action) -> None:
        """Do an action of the case. A fault becomes the finding, and ends the run."""
        self._at = self._actions
        self._try(lambda: self._do(*action))
        self._actions += 1
        if not self.over:
            self._memory.after(self._actions, self._judge.steps)

    def drain(self, order: Sequence[Component]) -> None:
        """Drain the cache, unless there is a finding."""
        self._at = self._actions
        self._try(lambda: self.client.drain(order))

    def tally(self) -> Tally:
        """The counts so far."""
        exercised, service = Counter(self._judge.laws_exercised), self._judge.service
        return Tally(
            1,
            self._actions,
            self._judge.steps,
            +exercised,
            Counter(service.served),
            Counter(service.refused),
            known=Counter(self._known_broken),
            too_slow=int(self.too_slow),
            growth=self._memory.growth,
        )

    def compare_with(self, model: CaseRun, numbers: PageNumbers) -> None:
        """Note the first difference from the cache that this one must agree with."""
        ours, theirs = model.recorder, self.recorder
        if ours is not None and theirs is not None and not (self.over or model.over):
            NOTE.step(self._at, self._judge.steps, compared=self._is_model)
            try:
                difference = within(LIMIT.action, lambda: first_difference(ours, theirs, numbers))
            except CacheSilent as silence:
                self._crashed(silence, f"{silence}, where it shows its state")
                return
            except BaseException as error:  # Perhaps no law checked the state.
                if is_users_interrupt(error):
                    raise
                text = f"shows a state that cannot be compared: {describe_exception(error)}"
                words = f"{text}\n{explain_exception(error)}"
                self._found(Grounds.AGREEMENT, "state", text, words)
                return
            if difference is not None:
                self._found(Grounds.AGREEMENT, difference.what, difference.text, difference.words)
                if difference.index is not None and self.finding is not None:
                    later = max(0, len(theirs.facts) - 1 - difference.index)
                    self.finding = evolve(self.finding, operation=self._judge.steps - later)
        self.forget_recorded()

    def forget_recorded(self) -> None:
        """Drop the recorded answers, which were compared."""
        if self.recorder is not None:
            self.recorder.forget()

    def _try(self, do: Callable[[], object]) -> None:
        if self.over:
            return
        NOTE.step(self._at, self._judge.steps, compared=self._is_model)
        try:
            within(LIMIT.action, do)
        except ViolationError as broken:
            self.finding = self._finding_of(broken)
        except CacheError as refusal:
            text = f"refused in the drain, which gives back only what clients hold: {refusal}"
            self._found(Grounds.CRASH, type(refusal).__name__, text, text)
        except AnswerError as wrong:
            self._found(Grounds.CRASH, type(wrong).__name__, str(wrong), str(wrong))
        except CacheSilent as silence:
            self._crashed(silence, str(silence))
        except CaseTooSlow:
            self.too_slow = True
        except BaseException as error:  # A cache may raise nothing but refusals.
            if is_users_interrupt(error):
                raise
            self._crashed(error, f"raised {describe_exception(error)}")

    def _crashed(self, error: BaseException, text: str) -> None:
        """Note an exception as the finding; to be called where it is handled."""
        self._found(Grounds.CRASH, type(error).__name__, text, explain_exception(error))

    def _found(self, grounds: Grounds, name: str, text: str, words: str) -> None:
        """Note a finding that is of no law; it ends the run."""
        case, at, operation = self._case, self._at, self._judge.steps
        self.finding = Finding(self.name, grounds, name, (), text, words, case, at, operation)

    def _note_excused(self, broken: ViolationError) -> None:
        """Note known laws, and the first broken SHOULD laws with later ones; the case goes on."""
        found = self._finding_of(broken)
        if self.unkept is None or not found.broken:
            self.unkept = found if found.broken else self.unkept
            return
        texts = {**self.unkept.evidence, **found.evidence, **self.unkept.evidence}
        self.unkept = evolve(self.unkept, broken=tuple(texts), texts=tuple(texts.values()))

    def _finding_of(self, broken: ViolationError) -> Finding:
        """The finding of the laws that are not known to be broken; the others are noted."""
        texts: dict[str, str] = {}
        for each in broken.violations:
            if each.law.law_id in self._known:
                self._known_broken.add(each.law.law_id)
            else:
                texts.setdefault(each.law.law_id, each.text)
        return Finding(
            cache=self.name,
            grounds=Grounds.LAW,
            name=next(iter(texts), ""),
            broken=tuple(texts),
            text=next(iter(texts.values()), ""),
            words=str(broken),
            case=self._case,
            action=self._at,
            operation=self._judge.steps,
            texts=tuple(texts.values()),
            after=broken.after,
        )


class SideBySide:
    """Caches in a case, each with its own client, up to the first finding of each.

    `against` is a cache that the others must agree with. A cache that does not offer the
    configuration is not played, and its tally says so. Raises: UsageError.
    """

    def __init__(
        self,
        case: Case,
        adapters: Sequence[Adapter],
        judges: JudgeConfig = ALL_JUDGES,
        against: Adapter | None = None,
    ) -> None:
        everyone = [*adapters, against] if against is not None else adapters
        if against is not None and any(each.kind is CacheKind.REQUEST for each in everyone):
            raise UsageError("request caches cannot be compared; leave `against` out")
        self._case, self._judges = case, judges
        self._stamps = Stamps(case.config.slot_bytes)
        self._absent: dict[str, Tally] = {}
        side = None if against is None else KeptAnswers(against.compared_folded)
        made = [self._run(each, side) for each in adapters]
        self._runs = [run for run in made if run is not None]
        self._model = None
        if against is not None:
            self._model = self._run(against, KeptAnswers(against.compared_folded, is_model=True))
        self._everyone = [self._model, *self._runs] if self._model else self._runs
        if self._model is not None:
            # All clients use only what all caches have; otherwise their calls would differ at once.
            can = frozenset.intersection(*(run.client.can for run in self._everyone))
            namespaces = min((run.client.namespaces for run in self._everyone), key=len)
            clients = [run.client for run in self._everyone if isinstance(run.client, Client)]
            within = all(client.states_within for client in clients)
            for client in clients:
                client.can, client.namespaces, client.states_within = can, namespaces, within

    @property
    def over(self) -> bool:
        """Whether every cache has a finding, so that no further action changes the result."""
        return all(run.over for run in self._runs)

    def act(self, action: Action) -> None:
        """Let every client do an action."""
        for run in self._everyone:
            run.act(action)
        self._compare()

    def drain(self, order: Sequence[Component]) -> None:
        """Drain every cache."""
        for run in self._everyone:
            run.drain(order)
        self._compare()

    def findings(self) -> list[Finding]:
        """The findings so far that ended the case for a cache."""
        return [run.finding for run in self._everyone if run.finding is not None]

    def unkept(self) -> list[Finding]:
        """The findings so far of broken SHOULD laws, one for each cache that has any."""
        return [run.unkept for run in self._everyone if run.unkept is not None]

    def tallies(self) -> dict[str, Tally]:
        """The counts so far, by cache."""
        played = {run.name: run.tally() for run in self._everyone}
        return played | self._absent

    def _run(self, adapter: Adapter, kept: KeptAnswers | None) -> CaseRun | None:
        """Make the run of a cache; None if the cache does not offer the configuration."""
        try:
            return CaseRun(adapter, self._case, self._judges, stamps=self._stamps, kept=kept)
        except Unoffered as why:
            declined = isinstance(why.__cause__, BadArgument)
            self._absent[adapter.name] = Tally(unoffered=1, declined=int(declined))
            return None

    def _compare(self) -> None:
        """Compare every cache with the one that it must agree with."""
        model = self._model
        if model is None:
            return
        for run in self._runs:
            run.compare_with(model, self._stamps.numbers)
        model.forget_recorded()


def play(
    case: Case,
    adapters: Sequence[Adapter],
    judges: JudgeConfig = ALL_JUDGES,
    against: Adapter | None = None,
) -> tuple[list[Finding], dict[str, Tally]]:
    """Play a case on caches side by side; `against` is a cache that the others must agree with.

    A finding ends the case for its cache, unless only SHOULD laws are broken; such findings come
    last. Returns the findings, and the counts of each cache. Raises: UsageError.
    """
    caches = SideBySide(case, adapters, judges, against)
    for action in case.actions:
        caches.act(action)
        if caches.over:
            break
    if case.drain:
        caches.drain(case.drain)
    return [*caches.findings(), *caches.unkept()], caches.tallies()
