"""Plays a script to a list of servers, and judges each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from time import monotonic

from attrs import frozen

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.serving.core_faults import FAULTS
from kvcanon.conformance.serving.player import play
from kvcanon.conformance.serving.script import EngineScript, script_from_json, script_to_json
from kvcanon.conformance.serving.script_rounds import ScriptSize, draw_script
from kvcanon.conformance.serving.server_setup import (
    MENDED,
    NO_CACHE,
    PAGE_SIZE,
    RUST,
    WRITE_THROUGH,
    ServerSetup,
)
from kvcanon.conformance.serving.summary import ServerRun, line_of, reference_for
from kvcanon.conformance.serving.tiny_model import SLIDING_MODEL, GreedyOracle, make_model
from kvcanon.conformance.serving.transcript import Transcript, transcript_to_json
from kvcanon.conformance.serving.verdict import (
    judge_server,
    reference_core,
)

Say = Callable[[str], None]


@frozen
class EngineRuns:
    """Plays scripts to servers. Scripts, models, logs and transcripts are in its folder."""

    folder: Path
    seed: int
    size: ScriptSize
    say: Say

    def script(self, model: str) -> EngineScript:
        """The script of a model; it is drawn, and the model made, if the folder has none."""
        path = self.folder / f"{model}-script.json"
        if not path.is_file():
            began = monotonic()
            made = make_model(model, self.seed)
            made.save_pretrained(self.folder / model)
            script = draw_script(model, self.seed, GreedyOracle(made), PAGE_SIZE, self.size)
            path.write_text(json.dumps(script_to_json(script)), encoding="utf-8")
            drawn = f"{len(script.requests)} requests, {monotonic() - began:.0f} s"
            self.say(f"script {model}, seed {self.seed}: {drawn}")
        return script_from_json(json.loads(path.read_text(encoding="utf-8")))

    def run(self, setup: ServerSetup, reference: Transcript | None) -> ServerRun:
        """Play the script to one server, and judge it. Raises: UsageError, if it does not start."""
        began = monotonic()
        script = self.script(setup.model)
        played = play(script, setup, self.folder / setup.model, self.folder)
        path = self.folder / f"{setup.name}.json"
        path.write_text(json.dumps(transcript_to_json(played)), encoding="utf-8")
        findings = tuple(judge_server(setup, script, played, reference))
        done = ServerRun(setup, played, findings, monotonic() - began)
        self.say(line_of(script, done))
        return done

    def run_all(self, setups: Iterable[ServerSetup]) -> list[ServerRun]:
        """Run servers, references first in each way to serve. Raises: UsageError."""
        done: list[ServerRun] = []
        for setup in sorted(setups, key=_references_first):
            done.append(self.run(setup, reference_for(setup, done)))
        return done


def _references_first(setup: ServerSetup) -> tuple[str, str, int, int]:
    order = (NO_CACHE, RUST, MENDED)
    place = order.index(setup.core) if setup.core in order else len(order)
    return (setup.model, setup.host, setup.ranks, place)


def fault_setups(core: str) -> list[ServerSetup]:
    """A server for each planted fault, of a window and a host, where all of them can be seen."""
    return [ServerSetup(SLIDING_MODEL, core, WRITE_THROUGH, fault=name) for name in FAULTS]


def run_faults(runs: EngineRuns, core: str) -> list[str]:
    """Plant every fault, and return those that were not found. Raises: UsageError."""
    sound = ServerSetup(SLIDING_MODEL, reference_core(core) or core, WRITE_THROUGH)
    reference = runs.run(sound, None)
    if reference.findings:
        raise UsageError(f"{sound.name} has findings without a fault; see {runs.folder}")
    missed = []
    for setup in fault_setups(core):
        try:
            if not runs.run(setup, reference.transcript).findings:
                missed.append(setup.fault)
        except UsageError as death:
            # A core that does not even let a server start has been found out, too.
            runs.say(f"{setup.name}: {death}")
    return missed
