"""Plays a script to a list of servers, and judges each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from time import monotonic

from attrs import evolve, frozen

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.serving.core_faults import FAULTS
from kvcanon.conformance.serving.player import play
from kvcanon.conformance.serving.script import EngineScript, script_from_json, script_to_json
from kvcanon.conformance.serving.script_rounds import ScriptSize, draw_script
from kvcanon.conformance.serving.server_setup import (
    NO_CACHE,
    NO_HOST,
    PAGE_SIZE,
    RUST,
    WRITE_THROUGH,
    ServerSetup,
)
from kvcanon.conformance.serving.tiny_model import SLIDING_MODEL, GreedyOracle, make_model
from kvcanon.conformance.serving.transcript import Transcript, transcript_to_json
from kvcanon.conformance.serving.verdict import EngineFinding, FindingKind, judge_server

Say = Callable[[str], None]


@frozen
class ServerRun:
    """One server, what it answered, and what was wrong."""

    setup: ServerSetup
    transcript: Transcript
    findings: tuple[EngineFinding, ...]
    seconds: float


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
        """Run servers, the Rust core first in each way to serve. Raises: UsageError."""
        done: list[ServerRun] = []
        for setup in sorted(setups, key=_rust_first):
            done.append(self.run(setup, reference_for(setup, done)))
        return done


def _rust_first(setup: ServerSetup) -> tuple[str, bool, str, int, bool]:
    return (setup.model, setup.core != NO_CACHE, setup.host, setup.ranks, setup.core != RUST)


def reference_for(setup: ServerSetup, done: Sequence[ServerRun]) -> Transcript | None:
    """What the Rust core answered, served alike; None for itself, or if it did not run."""
    wanted = evolve(setup, core=RUST, fault="")
    found = (each.transcript for each in done if each.setup == wanted)
    return None if setup == wanted else next(found, None)


def line_of(script: EngineScript, done: ServerRun) -> str:
    """One line on a server: how much it answered, what was cached, what was wrong."""
    replies = done.transcript.replies.values()
    device = sum(reply.device_tokens for reply in replies)
    host = sum(reply.host_tokens for reply in replies)
    told = [
        f"{len(replies)} of {len(script.requests)} replies",
        f"{device:,} tokens hit on the device",
        f"{host:,} on the host",
        f"{sum(reply.retractions for reply in replies)} retractions",
        f"{sum(reply.ending == 'abort' for reply in replies)} aborts",
        f"{done.seconds:.0f} s",
    ]
    wrong = ", ".join(f"{count} {kind}" for kind, count in kinds_of(done.findings).items())
    return f"{done.setup.name}: {', '.join(told)}: {wrong or 'nothing wrong'}"


def kinds_of(findings: Iterable[EngineFinding]) -> dict[FindingKind, int]:
    """How often each kind was found."""
    found = [each.kind for each in findings]
    return {kind: found.count(kind) for kind in FindingKind if kind in found}


def not_exercised(script: EngineScript, done: Sequence[ServerRun]) -> list[str]:
    """What servers that nothing was wrong with were not seen to do, in words; it must be empty.

    A run proves little if nothing was evicted, retracted, aborted or loaded back.
    """
    missing = []
    for each in done:
        replies = each.transcript.replies.values()
        cached = each.setup.core != NO_CACHE
        removed = max((played.removed for played in each.transcript.rounds), default=0)
        seen = {
            "retract": any(reply.retractions for reply in replies),
            "abort": any(reply.ending == "abort" for reply in replies),
            "answer all": len(replies) == len(script.requests),
            "hit": not cached or any(reply.device_tokens for reply in replies),
            "evict": not cached or removed > 0,
            "load back": each.setup.host == NO_HOST or any(reply.host_tokens for reply in replies),
        }
        missing += [f"{each.setup.name} did not {what}" for what, was in seen.items() if not was]
    return missing


def fault_setups(core: str) -> list[ServerSetup]:
    """A server for each planted fault, of a window and a host, where all of them can be seen."""
    return [ServerSetup(SLIDING_MODEL, core, WRITE_THROUGH, fault=name) for name in FAULTS]


def run_faults(runs: EngineRuns, core: str) -> list[str]:
    """Plant every fault, and return those that were not found. Raises: UsageError."""
    sound = ServerSetup(SLIDING_MODEL, RUST, WRITE_THROUGH)
    reference = runs.run(sound, None)
    if reference.findings:
        raise UsageError(f"{sound.name} has findings without a fault; see above")
    missed = []
    for setup in fault_setups(core):
        try:
            if not runs.run(setup, reference.transcript).findings:
                missed.append(setup.fault)
        except UsageError as death:
            # A core that does not even let a server start has been found out, too.
            runs.say(f"{setup.name}: {death}")
    return missed
