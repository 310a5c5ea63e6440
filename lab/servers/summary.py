"""Runs in words: what servers answered, where they differ from Rust, and what a run left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from attrs import evolve, frozen

from kvcanon.lab.servers.script import EngineScript
from kvcanon.lab.servers.server_setup import MENDED, NO_CACHE, NO_HOST, RUST, ServerSetup
from kvcanon.lab.servers.transcript import Transcript
from kvcanon.lab.servers.verdict import (
    EngineFinding,
    FindingKind,
    comparable_rounds,
    reference_core,
)


@frozen
class ServerRun:
    """One server, what it answered, and what was wrong."""

    setup: ServerSetup
    transcript: Transcript
    findings: tuple[EngineFinding, ...]
    seconds: float | None
    """How long it took; None if an earlier portion played it."""


def reference_for(setup: ServerSetup, done: Sequence[ServerRun]) -> Transcript | None:
    """What the core answered, served alike, that this one is compared with; None if none did."""
    wanted = evolve(setup, core=reference_core(setup.core), fault="")
    return next((each.transcript for each in done if each.setup == wanted), None)


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
        "played before" if done.seconds is None else f"{done.seconds:.0f} s",
    ]
    wrong = ", ".join(f"{count} {kind}" for kind, count in kinds_of(done.findings).items())
    return f"{done.setup.name}: {', '.join(told)}: {wrong or 'nothing wrong'}"


def kinds_of(findings: Iterable[EngineFinding]) -> dict[FindingKind, int]:
    """How often each kind was found."""
    found = [each.kind for each in findings]
    return {kind: found.count(kind) for kind in FindingKind if kind in found}


def not_exercised(script: EngineScript, each: ServerRun) -> list[str]:
    """What a server was not seen to do, in words; it must be empty.

    A run proves little if nothing was evicted, retracted, aborted or loaded back.
    """
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
    return [f"{each.setup.name} did not {what}" for what, was in seen.items() if not was]


def beside_rust(script: EngineScript, each: ServerRun, done: Sequence[ServerRun]) -> Iterator[str]:
    """A line on a core that is not SGLang's: how often it hits more or less than the Rust core."""
    wanted = evolve(each.setup, core=RUST, fault="")
    rust = next((other.transcript for other in done if other.setup == wanted), None)
    if rust is None or reference_core(each.setup.core) != MENDED:
        return
    names = {request.name for part in comparable_rounds(script) for request in part.requests}
    ours, theirs = each.transcript.replies, rust.replies
    gains = [
        ours[name].cached_tokens - theirs[name].cached_tokens
        for name in names & ours.keys() & theirs.keys()
    ]
    yield (
        f"{each.setup.name} beside rust: {sum(gain == 0 for gain in gains)} requests hit alike, "
        f"{sum(gain > 0 for gain in gains)} more, {sum(gain < 0 for gain in gains)} less: "
        f"{sum(gains):+} tokens"
    )


def not_compared(done: Sequence[ServerRun]) -> list[str]:
    """The servers whose reference was not run, in words; it must be empty."""
    return [
        f"{each.setup.name} was not compared: no {reference_core(each.setup.core)} was served alike"
        for each in done
        if reference_core(each.setup.core) and reference_for(each.setup, done) is None
    ]
