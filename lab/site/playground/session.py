"""Plays the reader's case on the plain cache in the browser, and judges it.

The page and this module exchange JSON. A case grows call by call, so a game is kept: the calls that
were played are not played again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from attrs import evolve

from kvcanon.conformance.cases.actions import ACTIONS, UNDRAWN
from kvcanon.conformance.cases.case import Action, Case, case_from_json, case_to_json
from kvcanon.conformance.check.play import CaseRun
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.judge import JudgeConfig
from kvcanon.conformance.protocol.adapter import Unoffered
from kvcanon.conformance.protocol.cache_names import REFERENCE
from kvcanon.conformance.show.shown_run import Breach, ShownRun, config_facts
from kvcanon.conformance.show.state_recorder import Heard, StateRecorder, named_steps
from kvcanon.conformance.show.step_packer import StepPacker, all_parts
from kvcanon.conformance.vectors import Vector, VectorLevel, read_vectors
from kvcanon.lab.mutants.faulty import mutated, what_goes_wrong
from kvcanon.lab.mutants.planted import MUTANTS
from kvcanon.lab.mutants.vector_text import vector_text
from kvcanon.lab.variants.script_recorder import record_script
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.law import LAWS, Need
from kvcanon.spec.types import Component

FAULTS = {each.name: each for each in MUTANTS if Need.RANKS not in LAWS[each.law_id].needs}
"""The planted faults that one cache alone shows, by name."""
SOUND = ""
"""The name of no fault."""
MOST_ACTIONS = 200
"""A case of more is no longer read by eye."""
MOST_SLOTS = 4096
"""A pool of more takes a browser minutes to draw; an address may name any."""


class Game:
    """One cache, the calls that it got, and what they did."""

    def __init__(self, config: CacheConfig, fault: str) -> None:
        """Make the cache, with a fault or sound. Raises: BadArgument, UsageError, Unoffered."""
        self.config, self.fault = config, fault
        self.actions: list[Action] = []
        self.drained: tuple[Component, ...] = ()
        """The order in which all was evicted at the end; empty before."""
        self._heard = Heard()
        self._recorder = StateRecorder(self._heard.hear, by_states=True)
        adapter = mutated(FAULTS[fault]) if fault else evolve(REFERENCE, name="the plain cache")
        judges = JudgeConfig(ends_at_should=True)
        case = Case(config, (), ())
        self._run = CaseRun(adapter, case, judges, clients=self._recorder)

    @property
    def is_over(self) -> bool:
        """Whether a law was broken: what comes then is not played."""
        return self._run.finding is not None

    @property
    def broken(self) -> tuple[str, ...]:
        """The laws that were broken."""
        return () if self._run.finding is None else tuple(self._run.finding.broken)

    def act(self, action: Action) -> None:
        """Play one action."""
        self._run.act(action)
        self._recorder.action += 1
        self.actions.append(action)

    def drain(self, order: tuple[Component, ...]) -> None:
        """Evict all, slot by slot, as at the end of a case."""
        self.drained = order
        self._run.drain(order)

    def shown(self) -> ShownRun:
        """The calls up to now, for the page's viewer."""
        steps, finding = named_steps(self._heard.calls), self._run.finding
        if finding is not None and steps and not any(step.breaches for step in steps):
            steps[-1] = evolve(steps[-1], breaches=(Breach(finding.headline, finding.text),))
        packer = StepPacker(self._heard.start)
        for step in steps:
            packer.add(step)
        return ShownRun(
            title=self.fault or "a sound cache",
            facts=config_facts(self.config),
            config=self.config,
            group_word="action",
            groups=(*(action.name for action in self.actions), "the drain"),
            charts=packer.charts(),
            steps=packer.steps,
            breaks_at=packer.breaks_at,
            opens_at=packer.breaks_at if packer.breaks_at is not None else packer.steps,
            parts=packer.parts(),
        )


_kept: list[Game] = []
"""The game that was played last."""


def faults() -> str:
    """The planted faults: name, the law that it breaks, and what it does."""
    return json.dumps([[name, each.law_id, what_goes_wrong(each)] for name, each in FAULTS.items()])


def example(fault: str) -> str:
    """A short case in which a fault breaks a law, as the page asks for one."""
    law_id = FAULTS[fault].law_id

    def distance(vector: Vector) -> tuple[bool, bool]:
        return vector.mutant != fault, vector.law_id != law_id

    for vector in sorted(read_vectors(), key=distance):
        asked = {**case_to_json(vector.case), "fault": fault}
        if vector.case.ranks == 1 and _game_of(asked).broken:
            return json.dumps(asked)
    return json.dumps({"error": f"no vector shows {fault}"})


def show(asked: str) -> str:
    """Play a case; what the viewer needs, or the line that says what is wrong with the case."""
    try:
        game = _game_of(json.loads(asked))
    except (BadArgument, UsageError, Unoffered) as error:
        return json.dumps({"error": str(error)})
    _kept[:] = [game]
    return json.dumps(
        {
            "parts": dict(all_parts(game.shown())),
            "facts": [f"{name}: {value}" for name, value in config_facts(game.config)],
            "broken": game.broken,
            "played": len(game.actions),
        }
    )


def vector(asked: str) -> str:
    """The text of a vector's file for a case that breaks a law, for a cache's own tests."""
    game = _game_of(json.loads(asked))
    if not game.broken:
        return json.dumps({"error": "no law is broken, so that the case is a vector of no law"})
    law_id = game.broken[0]
    fault = FAULTS.get(game.fault)
    case = Case(game.config, tuple(game.actions), game.drained)
    made = Vector(
        f"{law_id}-mine",
        law_id,
        game.fault,
        what_goes_wrong(fault) if fault else "",
        VectorLevel.SNAPSHOT,
        case,
        record_script(case),
    )
    return json.dumps({"name": f"{made.vector_id}.json", "text": vector_text(made)})


def _game_of(asked: Mapping[str, Any]) -> Game:
    """The game of a case: the one that was kept, if the case only goes on, or a new one."""
    fault = asked.get("fault", SOUND)
    if fault != SOUND and fault not in FAULTS:
        raise BadArgument("fault", f"{fault!r} is not planted here; choose one of the list")
    case = case_from_json({name: asked[name] for name in asked if name != "fault"})
    unknown = [each.name for each in case.actions if each.name not in ACTIONS | UNDRAWN]
    if unknown:
        raise BadArgument("actions", f"{unknown[0]!r} is no action")
    if len(case.actions) > MOST_ACTIONS:
        raise BadArgument("actions", f"are {len(case.actions)}; at most {MOST_ACTIONS} are played")
    for pools in (case.config.device_slots, case.config.host_slots):
        if max(pools.full, pools.swa, pools.mamba) > MOST_SLOTS:
            raise BadArgument("slots", f"are at most {MOST_SLOTS} in a pool here")
    actions = list(case.actions)
    game = next(
        (
            each
            for each in _kept
            if (each.config, each.fault, each.drained) == (case.config, fault, ())
            and each.actions == actions[: len(each.actions)]
        ),
        None,
    ) or Game(case.config, fault)
    for action in actions[len(game.actions) :]:
        if game.is_over:
            break
        game.act(action)
    if case.drain and not game.is_over:
        game.drain(case.drain)
    return game
