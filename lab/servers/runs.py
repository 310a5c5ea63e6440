"""Plays a script to a list of servers, and judges each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from time import monotonic
from typing import Any

from attrs import Factory, asdict, evolve, frozen

from kvcanon.conformance.errors import UsageError
from kvcanon.lab.servers.core_faults import FAULTS
from kvcanon.lab.servers.kept_runs import KeptRuns
from kvcanon.lab.servers.script import EngineScript
from kvcanon.lab.servers.script_player import play
from kvcanon.lab.servers.script_rounds import ScriptSize, draw_script
from kvcanon.lab.servers.server_setup import (
    MENDED,
    NO_CACHE,
    PAGE_SIZE,
    RUST,
    WRITE_THROUGH,
    ServerSetup,
)
from kvcanon.lab.servers.summary import ServerRun, kinds_of, line_of, reference_for
from kvcanon.lab.servers.tiny_model import SLIDING_MODEL, GreedyOracle, make_model
from kvcanon.lab.servers.transcript import Transcript
from kvcanon.lab.servers.verdict import judge_server, reference_core

Say = Callable[[str], None]


@frozen
class EngineRuns:
    """Plays scripts to servers. Scripts, models, logs and transcripts are in its folder."""

    folder: Path
    seed: int
    size: ScriptSize
    say: Say
    kept: KeptRuns | None = None
    """What earlier portions played; None where the run is one portion."""
    scripts: dict[str, EngineScript] = Factory(dict)
    """The scripts that were drawn, by model."""

    def script(self, model: str) -> EngineScript:
        """The script of a model; the first time the model is made and the script drawn."""
        if model not in self.scripts:
            name = f"{model}-script"
            kept = self.kept.script(name) if self.kept else None
            self.scripts[model] = kept or self._drawn(model, name)
        return self.scripts[model]

    def _drawn(self, model: str, name: str) -> EngineScript:
        began = monotonic()
        made = make_model(model, self.seed)
        made.save_pretrained(self.folder / model)
        script = draw_script(model, self.seed, GreedyOracle(made), PAGE_SIZE, self.size)
        self._write(name, asdict(script))
        drawn = f"{len(script.requests)} requests, {monotonic() - began:.0f} s"
        self.say(f"script {model}, seed {self.seed}: {drawn}")
        return script

    def run(self, setup: ServerSetup, reference: Transcript | None) -> ServerRun:
        """Play the script to one server, and judge it, also if it does not start.

        Raises: PortionOverError, where the server is left to a later portion.
        """
        began = monotonic()
        script = self.script(setup.model)
        played = self.kept.transcript(setup.name) if self.kept else None
        seconds = None
        if played is None:
            played = self._played(script, setup)
            seconds = monotonic() - began
        findings = tuple(judge_server(setup, script, played, reference))
        done = ServerRun(setup, played, findings, seconds)
        self.say(line_of(script, done))
        return done

    def _played(self, script: EngineScript, setup: ServerSetup) -> Transcript:
        if self.kept is not None:
            self.kept.require_time()
        try:
            played = play(script, setup, self.folder / setup.model, self.folder)
        except UsageError as death:
            played = Transcript(setup.name, "", (), death=str(death))
        self._write(setup.name, asdict(played))
        return played

    def run_all(self, setups: Iterable[ServerSetup]) -> list[ServerRun]:
        """Run servers, references first in each way to serve."""
        done: list[ServerRun] = []
        for setup in sorted(setups, key=_references_first):
            done.append(self.run(setup, reference_for(setup, done)))
        return done

    def _write(self, name: str, plain: dict[str, Any]) -> None:
        # Under its name only once it is whole: a run may be stopped at any time.
        unfinished = self.folder / f"{name}.part"
        unfinished.write_text(json.dumps(plain), encoding="utf-8")
        unfinished.replace(self.folder / f"{name}.json")


def _references_first(setup: ServerSetup) -> tuple[str, str, int, int]:
    order = (NO_CACHE, RUST, MENDED)
    place = order.index(setup.core) if setup.core in order else len(order)
    return (setup.model, setup.host, setup.ranks, place)


def fault_setups(core: str, only: str) -> list[ServerSetup]:
    """A server for each planted fault, of a window and a host, where all of them can be seen.

    Raises: UsageError, if no fault has `only` in its name.
    """
    names = [name for name in FAULTS if only in name]
    if not names:
        raise UsageError(f"--only {only!r} leaves no fault of {len(FAULTS)}")
    return [ServerSetup(SLIDING_MODEL, core, WRITE_THROUGH, fault=name) for name in names]


def run_faults(runs: EngineRuns, core: str, only: str = "") -> list[str]:
    """Plant the faults with `only` in their names, and return those that were not found.

    What is found of the core without a fault does not count. Raises: UsageError.
    """
    setups = fault_setups(core, only)
    sound = ServerSetup(SLIDING_MODEL, core, WRITE_THROUGH)
    reference = None
    if reference_core(core):
        reference = runs.run(evolve(sound, core=reference_core(core)), None).transcript
    usual = {(each.kind, each.words) for each in runs.run(sound, reference).findings}
    missed = []
    for setup in setups:
        found = [
            each
            for each in runs.run(setup, reference).findings
            if (each.kind, each.words) not in usual
        ]
        kinds = ", ".join(f"{count} {kind}" for kind, count in kinds_of(found).items())
        runs.say(f"  {setup.fault}: {kinds or 'NOT FOUND'}")
        runs.say("".join(f"    {each.words}\n" for each in found[:1]).rstrip())
        if not found:
            missed.append(setup.fault)
    return missed
