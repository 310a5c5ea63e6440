"""Witnesses: a law's vectors, played on the cache with the fault and on the plain cache.

Each call is recorded with the states before and after it. The picture of a call of the plain cache
beside that of the faulty one shows what the law is about.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from attrs import evolve, frozen

from kvcanon.conformance.cases.client import Client, Stamps
from kvcanon.conformance.check.call_recorder import CallRecorder
from kvcanon.conformance.check.play import CaseRun
from kvcanon.conformance.check.recorded_calls import Call, RecordedCall
from kvcanon.conformance.check.result import Finding
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.judge import JudgeConfig
from kvcanon.conformance.protocol.adapter import Adapter, Subject
from kvcanon.conformance.protocol.cache_names import REFERENCE
from kvcanon.conformance.vectors import Vector
from kvcanon.lab.mutants.faulty import judges_by_states, mutated
from kvcanon.lab.mutants.planted.entry import Mutant
from kvcanon.spec.cache import Cache
from kvcanon.spec.law import LAWS, Need
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import Namespace

Result = TypeVar("Result")


@frozen
class CallScene:
    """One call, and the states around it."""

    call: RecordedCall
    before: Snapshot
    after: Snapshot

    @property
    def changes(self) -> bool:
        """Whether a picture shows a difference."""
        return _visible(self.before) != _visible(self.after)


@frozen
class PlayedWitness:
    """A vector, as the cache with its fault plays it, and as the plain cache does."""

    vector: Vector
    mutant: Mutant
    scenes: tuple[CallScene, ...]
    """The calls of the faulty cache, up to the one that breaks the law."""
    text: str
    """What the law says about that call."""
    correct: CallScene | None
    """The same call of the plain cache; None where its client made another."""


def play_witness(vector: Vector, mutants: Sequence[Mutant]) -> PlayedWitness:
    """Play a vector on a cache with a fault that breaks its law there. Raises: UsageError.

    That is the fault which it was made with, or else one of those which are planted for the law.
    """
    named = [each for each in mutants if each.name == vector.mutant]
    others = [each for each in mutants if each.law_id == vector.law_id and each not in named]
    for mutant in (*named, *others):
        witness = _witness(vector, mutant)
        if witness is not None:
            return witness
    raise UsageError(f"in vector {vector.vector_id} no planted fault breaks {vector.law_id}")


def _witness(vector: Vector, mutant: Mutant) -> PlayedWitness | None:
    laws, ranks = (vector.law_id,), judges_by_states(mutant).ranks
    for judges in (JudgeConfig(laws=laws, ranks=ranks), JudgeConfig(black_box=True, laws=laws)):
        scenes, finding = _play(vector, mutated(mutant), judges)
        if finding is not None and vector.law_id in finding.broken:
            break
    else:
        return None
    text = dict(zip(finding.broken, finding.texts, strict=True))[vector.law_id]
    of_ranks = Need.RANKS in LAWS[vector.law_id].needs
    plain, _ = _play(vector, REFERENCE, JudgeConfig(laws=(), ranks=ranks))
    number = scenes[-1].call.number
    same = [each for each in plain if each.call.number == number and number is not None]
    correct = same[0] if same and same[0].call.call == scenes[-1].call.call else None
    return PlayedWitness(vector, mutant, tuple(scenes), text, None if of_ranks else correct)


class SceneRecorder(CallRecorder):
    """Records every call with the states before and after it."""

    def __init__(self) -> None:
        super().__init__()
        self.scenes: list[CallScene] = []
        self._cache: Cache | None = None

    def tree_client(
        self, cache: Cache, subject: Subject, stamps: Stamps, namespaces: tuple[Namespace, ...]
    ) -> Client:
        """Make a client whose calls are recorded."""
        self._cache = subject.cache
        return super().tree_client(cache, subject, stamps, namespaces)

    def record(self, call: Call, do: Callable[[], Result], *, operation: bool = False) -> Result:
        """Make a call, and record it with the states around it."""
        assert self._cache is not None  # noqa: S101  # A client was made first.
        before, known = self._cache.snapshot(), len(self.calls)
        try:
            return super().record(call, do, operation=operation)
        finally:
            after = self._cache.snapshot()
            self.scenes += [CallScene(each, before, after) for each in self.calls[known:]]


def _play(
    vector: Vector, adapter: Adapter, judges: JudgeConfig
) -> tuple[Sequence[CallScene], Finding | None]:
    """Play a vector's case up to the first finding."""
    case, recorder = vector.case, SceneRecorder()
    judges = evolve(judges, ends_at_should=True)
    run = CaseRun(adapter, case, judges, clients=recorder)
    for action in case.actions:
        if run.finding is None:
            run.act(action)
            recorder.action += 1
    if case.drain:
        run.drain(case.drain)
    return recorder.scenes, run.finding


def _visible(state: Snapshot) -> tuple[object, ...]:
    nodes = [
        (each.node_id, each.parent_id, each.pages, tuple(each.data.items()))
        for each in state.nodes.values()
    ]
    free = [(pool, len(each.free)) for pool, each in state.pools.items()]
    return nodes, free, state.holds, state.transfers, state.recency, state.events
