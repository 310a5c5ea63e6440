"""Compares what servers answered with transformers, with SGLang's cores, and with events.

Tokens are compared for every request. Cached tokens and events are compared with those of a
reference where they repeat: up to the first round whose clients race, and again after a flush.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum

from attrs import frozen

from kvcanon.lab.servers.script import EngineScript, ScriptedRequest, ScriptRound
from kvcanon.lab.servers.server_setup import MENDED, NO_CACHE, PYTHON, RUST, ServerSetup
from kvcanon.lab.servers.tiny_model import FULL_MODEL
from kvcanon.lab.servers.transcript import EngineReply, RoundTranscript, Transcript


class FindingKind(StrEnum):
    """What was wrong."""

    TOKENS = "wrong tokens"
    COUNTS = "wrong counts"
    EVENTS = "wrong events"
    DEATH = "server ended"
    CORE = "wrong core"


@frozen
class EngineFinding:
    """One thing that was wrong."""

    server: str
    kind: FindingKind
    words: str


Found = Iterator[tuple[FindingKind, str]]


def judge_server(
    setup: ServerSetup, script: EngineScript, played: Transcript, reference: Transcript | None
) -> list[EngineFinding]:
    """Everything wrong with a transcript; `reference` is that of `reference_core`."""
    if played.death and not played.rounds:
        return [EngineFinding(setup.name, FindingKind.DEATH, played.death)]
    found = [
        *_death(script, played),
        *_core(setup, played),
        *wrong_tokens(script, played),
        *wrong_bounds(setup, script, played),
        *((FindingKind.EVENTS, words) for words in played.event_faults),
    ]
    if setup.core != NO_CACHE:
        found += wrong_overlaps(setup, script, played)
        if reference is not None:
            found += differences(script, played, reference)
    return [EngineFinding(setup.name, kind, words) for kind, words in found]


def wrong_tokens(script: EngineScript, played: Transcript) -> Found:
    """Replies that are not what transformers generates."""
    replies = played.replies
    for request in script.requests:
        reply = replies.get(request.name)
        if reply is None:
            continue
        at = _first_difference(request.expected, reply.tokens)
        ended = reply.ending == "length" and len(reply.tokens) == len(request.expected)
        aborted = reply.ending == "abort" and 0 < request.abort_after <= len(reply.tokens)
        if at is not None:
            expected, got = request.expected[at : at + 1], reply.tokens[at : at + 1]
            words = f"token {at} is {got or 'absent'}, transformers says {expected or 'none'}"
            yield FindingKind.TOKENS, f"{request.name}: {words}"
        elif not ended and not aborted:
            words = f"ended with {reply.ending!r} after {len(reply.tokens)} tokens"
            yield FindingKind.TOKENS, f"{request.name}: {words}"


def wrong_bounds(setup: ServerSetup, script: EngineScript, played: Transcript) -> Found:
    """Replies with more cached tokens than any earlier request of the namespace can have left."""
    replies = played.replies
    sent: list[ScriptedRequest] = []
    for each in script.rounds:
        if each.flush:
            sent.clear()
        if not each.in_turn:
            sent.extend(each.requests)
        for request in each.requests:
            reply = replies.get(request.name)
            most = 0 if setup.core == NO_CACHE else most_cached(request, sent, script.page_size)
            if reply is not None and reply.cached_tokens > most and not reply.retractions:
                words = f"{reply.cached_tokens} tokens are cached, at most {most} can be"
                yield FindingKind.COUNTS, f"{request.name}: {words}"
            sent.append(request)


def most_cached(request: ScriptedRequest, sent: Sequence[ScriptedRequest], page_size: int) -> int:
    """The most tokens of a prompt that earlier requests of its namespace can have left.

    The last token of a prompt is always computed.
    """
    names = (request.namespace, request.salt)
    shared = [
        _shared(request.tokens[:-1], other.tokens + other.expected)
        for other in sent
        if (other.namespace, other.salt) == names and other is not request
    ]
    return max(shared, default=0) // page_size * page_size


def wrong_overlaps(setup: ServerSetup, script: EngineScript, played: Transcript) -> Found:
    """Replies whose cached tokens are not what the events before them said."""
    mixed = False
    for each, answered in zip(script.rounds, played.rounds, strict=False):
        # Hashes leave out `extra_key`: pages of two namespaces may have one hash.
        mixed = (mixed and not each.flush) or any(request.namespace for request in each.requests)
        for reply in answered.replies:
            if not reply.overlap or mixed:
                continue
            device, either = (pages * script.page_size for pages in reply.overlap)
            exact = setup.model == FULL_MODEL
            wrong = reply.cached_tokens > either or (exact and reply.device_tokens != device)
            if wrong:
                words = f"cached are {reply.device_tokens} and {reply.host_tokens} tokens"
                told = f"events said {device} on the device and {either - device} on the host"
                yield FindingKind.EVENTS, f"{reply.name}: {words}, {told}"


def differences(script: EngineScript, played: Transcript, reference: Transcript) -> Found:
    """What differs from the reference where both repeat."""
    for each in comparable_rounds(script):
        ours, theirs = _round(played, each.name), _round(reference, each.name)
        if ours is None or theirs is None:
            continue
        for reply, other in zip(ours.replies, theirs.replies, strict=True):
            yield from _reply_differences(reply, other)
        if ours.pages != theirs.pages:
            counts = [sum(len(pages) for pages in seen.pages.values()) for seen in (ours, theirs)]
            words = f"events leave {counts[0]} pages, the reference's {counts[1]}, or others"
            yield FindingKind.EVENTS, f"after {each.name}: {words}"


def reference_core(core: str) -> str:
    """The core that another is compared with; empty for none.

    SGLang's own agree with each other. Others are held to the Python core without sgl#38482, and
    equal Rust's where that fault does not show.
    """
    own = {RUST: "", PYTHON: RUST, MENDED: "", NO_CACHE: ""}
    return own.get(core, MENDED)


def with_references(cores: Sequence[str]) -> tuple[str, ...]:
    """Cores, and those that they are compared with: Rust's too, for a line on the difference."""
    needed = [RUST, *(reference_core(each) for each in cores)] if cores else []
    return tuple(dict.fromkeys(each for each in (*cores, *needed) if each))


def comparable_rounds(script: EngineScript) -> list[ScriptRound]:
    """The rounds before which nothing depended on the machine."""
    found = []
    repeats = True
    for each in script.rounds:
        repeats = (repeats or each.flush) and each.repeatable
        if repeats:
            found.append(each)
    return found


def _reply_differences(reply: EngineReply, other: EngineReply) -> Found:
    ours = (reply.device_tokens, reply.host_tokens, reply.retractions)
    theirs = (other.device_tokens, other.host_tokens, other.retractions)
    if ours != theirs:
        words = "cached tokens on device and host, and retractions, are {}; the reference has {}"
        yield FindingKind.COUNTS, f"{reply.name}: {words.format(ours, theirs)}"
    elif reply.resident != other.resident:
        words = "pages on device and host are {}; the reference's {}"
        yield (
            FindingKind.EVENTS,
            f"after {reply.name}: {words.format(reply.resident, other.resident)}",
        )


def _death(script: EngineScript, played: Transcript) -> Found:
    if played.death:
        done = len(played.rounds)
        during = script.rounds[done].name if done < len(script.rounds) else "the end"
        yield FindingKind.DEATH, f"during {during}: {played.death}"


def _core(setup: ServerSetup, played: Transcript) -> Found:
    expected = CORE_CLASSES.get(setup.core, "")
    if not played.core.startswith(expected) or (setup.core != NO_CACHE and not played.core):
        yield FindingKind.CORE, f"the log names {played.core or 'no core'}, not {expected}"


CORE_CLASSES = {
    "rust": "RustUnifiedTreeCore",
    "python": "UnifiedTreeCore",
    "mended": "UnifiedTreeCore",
    "kvcanon": "Kvcanon",
}
"""How the class in a server's log begins: SGLang may fall back from one core to another."""


def _round(played: Transcript, name: str) -> RoundTranscript | None:
    return next((each for each in played.rounds if each.name == name), None)


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _first_difference(expected: Sequence[int], got: Sequence[int]) -> int | None:
    """Where the tokens that came are not those that should; None if they are, as far as they go."""
    shared = _shared(expected, got)
    return None if shared == len(got) else shared
