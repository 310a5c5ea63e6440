"""The machine: Hypothesis draws cases, with one rule for each action.

A rule takes plain numbers, so that Hypothesis prints code that can be pasted. Each failure is also
a `Case`, which can be played without Hypothesis.

Failing cases are reduced as those of the walker are: Hypothesis does not stop at a deadline.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf
from time import monotonic
from typing import Any, TypeVar
from unittest.mock import patch

from attrs import Factory, define, evolve, frozen
from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis import strategies as st
from hypothesis.database import ExampleDatabase
from hypothesis.errors import Flaky
from hypothesis.internal.conjecture import providers
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kvcanon.conformance.cases.actions import ACTIONS, UNDRAWN
from kvcanon.conformance.cases.added_actions import ADDED
from kvcanon.conformance.cases.case import (
    DRAIN,
    PICKS,
    Action,
    Case,
    case_from_json,
    case_to_json,
    config_from_json,
)
from kvcanon.conformance.cases.state_actions import STATES
from kvcanon.conformance.cases.wait_actions import DRAWN as DRAWN_WAITS
from kvcanon.conformance.cases.wrong_calls import OF_KEYS
from kvcanon.conformance.check.play import SideBySide
from kvcanon.conformance.check.reduce import reduce_case
from kvcanon.conformance.check.result import Finding, Tally, shorter
from kvcanon.conformance.check.trial import Trial
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.protocol.adapter import Offer
from kvcanon.conformance.protocol.drawn_config import any_config
from kvcanon.conformance.workers.notes import NOTE
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import Component

STEPS = 50
"""Actions of a case."""
DRAINING = "drain"
"""In the note of a worker, after all actions."""

CI = settings(
    derandomize=True,
    database=None,
    deadline=None,  # A deadline would measure the machine.
    # To shrink has no time limit, and the explain phase traces every line. A target of seldom met
    # premises was tried: such cases are alike, and visit less in more time.
    phases=(Phase.reuse, Phase.generate),
    # The number of reported bugs would depend on the clock.
    report_multiple_bugs=False,
    verbosity=Verbosity.quiet,
    print_blob=False,
    # A busy machine makes any draw slow.
    suppress_health_check=[HealthCheck.too_slow],
)
"""No database: the same seed finds the same failures."""

DEEP = settings(CI, derandomize=False)
"""Settings for a database, which tries earlier failures first."""


class HypothesisFailure(AssertionError):
    """A finding in a case that Hypothesis drew."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.words)
        self.finding = finding


@define
class Journal:
    """The results of the drawn cases."""

    tally: Tally = Factory(Tally)
    """The counts up to the first finding that ends a case; later cases only repeat it."""
    ends: float = inf
    """The moment of `monotonic` after which no case begins."""
    cut: bool = False
    """Whether a case did not begin."""
    closed: bool = False
    shortest: Finding | None = None
    """The finding with the fewest actions."""
    unkept: Finding | None = None
    """The one with the fewest that breaks SHOULD laws alone."""


class CaseMachine(RuleBasedStateMachine):
    """One case that Hypothesis draws, with a rule for each action; `machine_of` adds the rest."""

    trial: Trial
    journal: Journal

    def __init__(self) -> None:
        super().__init__()
        self.config = CacheConfig()
        self._caches: SideBySide | None = None
        self._drain: tuple[Component, ...] = ()
        self._unobserved = False
        self._actions: list[Action] = []

    def start(self, config: Mapping[str, Any], drain: Sequence[str], *, unobserved: bool) -> None:
        """Make the caches. Raises: HypothesisFailure."""
        self.config = config_from_json(config)
        self._unobserved = unobserved
        self._drain = tuple(map(Component, drain))
        trial, journal = self.trial, self.journal
        if monotonic() > journal.ends and not journal.closed:
            journal.cut = True
            return
        try:
            case = self._case(drain=self._drain)
            NOTE.place(_line(case_to_json(case)))
            self._caches = SideBySide(case, [trial.adapter], trial.judges, trial.against)
        except UsageError:
            finding, _ = trial.play(self._case())
            if finding is not None:
                self._raise(finding)

    def act(self, action: Action) -> None:
        """Do an action. Raises: HypothesisFailure."""
        if self._caches is None or self._caches.over:
            return
        self._actions.append(action)
        NOTE.more(_line(action))
        self._caches.act(action)
        for finding in self._caches.findings():
            self._raise(evolve(finding, case=self._case()))

    def teardown(self) -> None:
        """Drain, unless there is a finding. Raises: HypothesisFailure."""
        if self._caches is None:
            return
        found_before = bool(self._caches.findings())
        if not found_before:
            NOTE.more(_line(DRAINING))
            self._caches.drain(self._drain)
        findings = self._caches.findings()
        if not self.journal.closed:
            self.journal.tally.add(self._caches.tallies()[self.trial.adapter.name])
            self.journal.closed = bool(findings)
        case = self._case(drain=self._drain)
        for finding in () if found_before else findings:
            self._raise(evolve(finding, case=case))
        for finding in () if findings else self._caches.unkept():
            self.journal.unkept = shorter(self.journal.unkept, evolve(finding, case=case))

    def _case(self, drain: tuple[Component, ...] = ()) -> Case:
        return Case(self.config, tuple(self._actions), drain, self._unobserved)

    def _raise(self, finding: Finding) -> None:
        self.journal.shortest = shorter(self.journal.shortest, finding)
        raise HypothesisFailure(finding)


# Its rules.

Rule = Callable[..., None]


def _rule_of(name: str) -> Rule:
    """The rule of an action."""
    kind = RULES[name]

    def do(machine: CaseMachine, **picked: int) -> None:
        machine.act(Action(name, **picked))

    do.__name__ = name
    # Unused picks have names with an underscore in front.
    used = [each for each in inspect.signature(kind.do).parameters if each in Action._fields]
    as_rule: Callable[..., Callable[[Rule], Rule]] = rule
    made = as_rule(**dict.fromkeys(used, st.integers(0, PICKS - 1)))(do)
    if name in OF_KEYS:
        return precondition(_offers_other_keys)(made)
    if name in STATES:
        return precondition(_takes_states)(made)
    return precondition(_has_host_tier)(made) if kind.host else made


def _has_host_tier(machine: CaseMachine) -> bool:
    return machine.config.host_tier


def _offers_other_keys(machine: CaseMachine) -> bool:
    return machine.trial.adapter.offer.other_keys


def _takes_states(machine: CaseMachine) -> bool:
    return machine.config.mamba and machine.trial.adapter.offer.states_within


RULES = ACTIONS | ADDED | STATES | {name: UNDRAWN[name] for name in (*DRAWN_WAITS, *OF_KEYS)}
"""The actions that have a rule: all but those that take as long as several cases."""

for _name in RULES:
    setattr(CaseMachine, _name, _rule_of(_name))


Option = TypeVar("Option")


@st.composite
def _configs(draw: st.DrawFn, offer: Offer) -> dict[str, Any]:
    """A configuration as a value for JSON, which prints as code."""

    def pick(options: Sequence[Option], /) -> Option:
        return draw(st.sampled_from(options))

    case = case_to_json(Case(any_config(pick, offer), ()))
    config: dict[str, Any] = json.loads(json.dumps(case["config"]))
    return config


def machine_of(trial: Trial, journal: Journal | None = None) -> type[CaseMachine]:
    """Make a machine for a cache: a class whose `TestCase` runs under unittest and pytest."""
    drains = st.permutations([component.value for component in DRAIN])
    unobserved = st.booleans() if trial.judges.black_box else st.just(value=False)

    class CacheMachine(CaseMachine):
        """The machine of one cache; the code that Hypothesis prints of a failure has its name."""

        @initialize(config=_configs(trial.adapter.offer), drain=drains, unobserved=unobserved)
        def begin(
            self, config: Mapping[str, Any], drain: Sequence[str], *, unobserved: bool = False
        ) -> None:
            """Make the caches of a case, and set the order of the drain."""
            self.start(config, drain, unobserved=unobserved)

    CacheMachine.trial, CacheMachine.journal = trial, journal or Journal()
    return CacheMachine


# The note of a worker.


def _line(value: object) -> bytes:
    """A line of a note."""
    return json.dumps(value).encode() + b"\n"


def noted_case(place: bytes) -> Case:
    """The case that a process noted before it ended. Raises: UsageError: it noted none."""
    if not place:
        raise UsageError("the process ended before it drew a case")
    first, *later = map(json.loads, place.splitlines())
    case = case_from_json(first)
    drained = DRAINING in later
    actions = tuple(Action(*each) for each in later if each != DRAINING)
    return evolve(case, actions=actions, drain=case.drain if drained else ())


# Runs.


@contextmanager
def no_local_constants() -> Iterator[None]:
    """Let Hypothesis draw from the seed alone, and no constants of the loaded modules.

    It collects numbers from the source of loaded local modules, and draws them now and then. Then
    one seed gives different cases wherever other modules are loaded: in a worker, under pytest, or
    in another folder.
    """
    if not hasattr(providers, "_get_local_constants"):
        yield
        return
    empty = type(providers._local_constants)()  # noqa: SLF001  # There is no setting for it.
    fresh = type(providers.CONSTANTS_CACHE)(1024)
    with (
        patch.object(providers, "_get_local_constants", lambda: empty),
        patch.object(providers, "CONSTANTS_CACHE", fresh),
    ):
        yield


@frozen
class Drawing:
    """What Hypothesis draws: how many cases, of how many actions, from where."""

    cases: int
    steps: int = STEPS
    """Actions of a case."""
    from_seed: int = 0
    database: ExampleDatabase | None = None
    """Processes may share a database; caches must not: each needs its own folder or prefix of
    keys."""


@frozen
class MachineRun:
    """The result of the cases that Hypothesis drew."""

    findings: tuple[Finding, ...]
    """The first in its smallest case; more of them if only longer cases break some law."""
    tally: Tally
    cut: bool = False
    """Whether the time was over before all cases were drawn."""


def draw_cases(
    trial: Trial, drawing: Drawing, *, ends: float = inf, journal: Journal | None = None
) -> MachineRun:
    """Draw cases from a seed, up to the first failure, and reduce it.

    No case begins after `ends`, a moment of `monotonic`. A failure of SHOULD laws alone is returned
    only if there is no other. Give a `journal` to look at each case.
    """
    journal = journal or Journal(ends=ends)
    machine = seed(drawing.from_seed)(machine_of(trial, journal))
    chosen = settings(
        CI if drawing.database is None else DEEP,
        max_examples=drawing.cases,
        stateful_step_count=drawing.steps + 1,  # The first is `begin`.
        database=drawing.database,
    )
    try:
        with no_local_constants():
            run_state_machine_as_test(machine, settings=chosen)
    except (HypothesisFailure, Flaky):
        # A fault that hangs until the time limit may not show again in a replay.
        if journal.shortest is None:
            raise
    shown = journal.shortest or journal.unkept
    origin = f"machine, seed {drawing.from_seed}"
    findings = () if shown is None else _reduced(trial, shown, origin)
    return MachineRun(tuple(findings), journal.tally, journal.cut)


def _reduced(trial: Trial, first: Finding, origin: str) -> Iterator[Finding]:
    """The finding in its smallest case, and one for each law that none of these cases breaks."""
    seen: set[str] = set()
    for finding in (first, *map(first.of_law, first.broken[1:])):
        if finding.name in seen:
            continue
        # A fault of a cache that is not deterministic may not be reducible.
        smallest = reduce_case(finding, trial) or evolve(finding, reduced=False)
        seen.update(smallest.broken)
        yield trial.seen_inside(evolve(trial.found(smallest), origin=origin))
