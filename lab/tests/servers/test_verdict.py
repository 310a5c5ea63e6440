"""The verdict finds what is wrong with a transcript, and nothing with a right one."""

import json
from collections.abc import Callable

import pytest
from attrs import asdict, evolve

from kvcanon.conformance.protocol.wire import from_json
from kvcanon.lab.servers.script import EngineScript, ScriptedRequest, ScriptRound, SendOrder
from kvcanon.lab.servers.server_setup import (
    MENDED,
    NO_CACHE,
    PYTHON,
    RUST,
    WRITE_THROUGH,
    ServerSetup,
)
from kvcanon.lab.servers.summary import (
    ServerRun,
    beside_rust,
    kinds_of,
    not_compared,
    not_exercised,
    reference_for,
)
from kvcanon.lab.servers.transcript import EngineReply, RoundTranscript, Transcript
from kvcanon.lab.servers.verdict import FindingKind, judge_server, with_references

PROMPT = tuple(range(10, 19))
FIRST = ScriptedRequest("first", PROMPT, (1, 2, 3))
AGAIN = ScriptedRequest("again", PROMPT, (1, 2, 3))
OTHER = ScriptedRequest("other", PROMPT, (1, 2, 3), namespace="tenant")
ABORTED = ScriptedRequest("aborted", PROMPT[:4], (7, 8, 9), abort_after=2)
SCRIPT = EngineScript(
    "full",
    0,
    4,
    (
        ScriptRound("in turn", SendOrder.ONE_BY_ONE, (FIRST, AGAIN)),
        ScriptRound("namespaces", SendOrder.ONE_BY_ONE, (OTHER,)),
        ScriptRound("racing", SendOrder.RACING, (ABORTED,)),
    ),
)
REPLIES = (
    EngineReply("first", (1, 2, 3), resident=(3, 0), overlap=(0, 0)),
    EngineReply("again", (1, 2, 3), device_tokens=8, resident=(3, 0), overlap=(2, 2)),
    EngineReply("other", (1, 2, 3), retractions=1, resident=(6, 0)),
)
PAGES = {"GPU": (5, 6, 7), "CPU_PINNED": ()}
PLAYED = Transcript(
    "full-rust-tp1",
    "RustUnifiedTreeCore",
    (
        RoundTranscript("in turn", REPLIES[:2], PAGES, 2),
        RoundTranscript("namespaces", REPLIES[2:], PAGES, 2),
        RoundTranscript("racing", (EngineReply("aborted", (7, 8), ending="abort"),), PAGES, 2),
    ),
)
SETUP = ServerSetup("full", RUST)


def with_reply(**changes: object) -> Transcript:
    """The transcript with another reply to `again`."""
    changed = evolve(REPLIES[1], **changes)  # type: ignore[arg-type]
    first = evolve(PLAYED.rounds[0], replies=(REPLIES[0], changed))
    return evolve(PLAYED, rounds=(first, *PLAYED.rounds[1:]))


def kinds(played: Transcript, setup: ServerSetup = SETUP) -> dict[FindingKind, int]:
    """What is found of a transcript beside the right one."""
    return kinds_of(judge_server(setup, SCRIPT, played, PLAYED))


def test_right_transcript_has_no_findings() -> None:
    """Nothing is wrong with a server that answers as it should, with or without a reference."""
    assert judge_server(SETUP, SCRIPT, PLAYED, None) == []
    assert kinds(PLAYED) == {}


def test_transcript_comes_back_from_json() -> None:
    """What one process wrote another reads."""
    assert from_json(Transcript, json.loads(json.dumps(asdict(PLAYED)))) == PLAYED


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"tokens": (1, 2, 4)}, FindingKind.TOKENS),
        ({"tokens": (1, 2)}, FindingKind.TOKENS),
        ({"tokens": (1, 2, 3, 4)}, FindingKind.TOKENS),
        ({"ending": "abort"}, FindingKind.TOKENS),
        ({"tokens": (), "ending": "out of memory"}, FindingKind.TOKENS),
        ({"retractions": 1}, FindingKind.COUNTS),
        ({"resident": (4, 0)}, FindingKind.EVENTS),
        ({"overlap": (1, 1)}, FindingKind.EVENTS),
    ],
)
def test_wrong_reply_is_found(changes: dict[str, object], found: FindingKind) -> None:
    """A reply that differs from transformers, the Rust core or the events is found, as that."""
    assert set(kinds(with_reply(**changes))) == {found}


@pytest.mark.parametrize("device", [4, 12])
def test_fewer_and_more_cached_tokens_are_found(device: int) -> None:
    """Fewer than Rust's is a loss of hits; more than was computed before cannot be."""
    told = with_reply(device_tokens=device, overlap=(device // 4,) * 2)
    assert kinds(told)[FindingKind.COUNTS] >= 1


def test_hit_in_another_namespace_is_found_without_a_reference() -> None:
    """No earlier request of its namespace can have left what `other` hits."""
    wrong = evolve(REPLIES[2], device_tokens=8, retractions=0)
    second = evolve(PLAYED.rounds[1], replies=(wrong,))
    told = evolve(PLAYED, rounds=(PLAYED.rounds[0], second, PLAYED.rounds[2]))
    words = [each.words for each in judge_server(SETUP, SCRIPT, told, None)]
    assert words == ["other: 8 tokens are cached, at most 0 can be"]


def test_no_cache_may_not_hit() -> None:
    """A server without a cache reports no cached tokens."""
    bare = ServerSetup("full", NO_CACHE)
    told = evolve(PLAYED, core="")
    found = judge_server(bare, SCRIPT, told, None)
    assert [each.words for each in found] == ["again: 8 tokens are cached, at most 0 can be"]


def test_abort_is_right_only_after_enough_tokens() -> None:
    """An aborted reply begins as transformers goes on, and was asked for."""
    for tokens, wrong in (((7, 8), 0), ((7,), 1), ((8, 7), 1)):
        reply = EngineReply("aborted", tokens, ending="abort")
        racing = evolve(PLAYED.rounds[2], replies=(reply,))
        assert sum(kinds(evolve(PLAYED, rounds=(*PLAYED.rounds[:2], racing))).values()) == wrong


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda t: evolve(t, death="RuntimeError: pool leak"), FindingKind.DEATH),
        (lambda t: evolve(t, event_faults=("batch 3 came where 2 was due",)), FindingKind.EVENTS),
        (lambda t: evolve(t, core="UnifiedTreeCore"), FindingKind.CORE),
        (lambda t: evolve(t, core=""), FindingKind.CORE),
        (
            lambda t: evolve(t, rounds=(evolve(t.rounds[0], pages={"GPU": (5,)}), *t.rounds[1:])),
            FindingKind.EVENTS,
        ),
    ],
)
def test_wrong_server_is_found(
    change: Callable[[Transcript], Transcript], found: FindingKind
) -> None:
    """A server that ended, fell back to another core, or whose events are wrong is found."""
    assert kinds(change(PLAYED)) == {found: 1}


def test_reference_is_of_a_core_served_alike() -> None:
    """Python's core is compared with Rust's; ours with Python's without sgl#38482."""
    rust, mended = (ServerRun(evolve(SETUP, core=core), PLAYED, (), 1.0) for core in (RUST, MENDED))
    done = [rust, mended]
    assert reference_for(evolve(SETUP, core=PYTHON), done) is rust.transcript
    assert reference_for(evolve(SETUP, core="kvcanon", fault="x"), done) is mended.transcript
    assert reference_for(evolve(SETUP, core="kvcanon", ranks=2), done) is None
    assert reference_for(SETUP, done) is reference_for(mended.setup, done) is None
    assert not_compared([*done, evolve(rust, setup=evolve(SETUP, core="kvcanon"))]) == []
    (words,) = not_compared([rust, evolve(rust, setup=evolve(SETUP, core="kvcanon"))])
    assert words == "full-kvcanon-tp1 was not compared: no mended was served alike"


def test_cores_come_with_their_references() -> None:
    """A core that is asked for alone is compared all the same."""
    assert with_references(["kvcanon"]) == ("kvcanon", RUST, MENDED)
    assert with_references([PYTHON]) == (PYTHON, RUST)
    assert with_references([]) == ()


def test_hits_are_counted_beside_those_of_rust() -> None:
    """A line says how many requests hit more and less than with the Rust core."""
    ours = ServerRun(evolve(SETUP, core="kvcanon"), with_reply(device_tokens=4), (), 1.0)
    done = [ServerRun(SETUP, PLAYED, (), 1.0), ours]
    (line,) = beside_rust(SCRIPT, ours, done)
    assert line == "full-kvcanon-tp1 beside rust: 2 requests hit alike, 0 more, 1 less: -4 tokens"
    assert list(beside_rust(SCRIPT, done[0], done)) == []
    assert list(beside_rust(SCRIPT, ours, [ours])) == []


def test_what_was_not_exercised_is_said() -> None:
    """A run in which nothing was loaded back, evicted or aborted proves little, and says so."""
    assert not_exercised(SCRIPT, ServerRun(SETUP, PLAYED, (), 1.0)) == []
    host = evolve(SETUP, host=WRITE_THROUGH)
    idle = evolve(PLAYED, rounds=(evolve(PLAYED.rounds[0], removed=0),))
    missing = not_exercised(SCRIPT, ServerRun(host, idle, (), 1.0))
    assert [words.partition("did not ")[2] for words in missing] == [
        "retract",
        "abort",
        "answer all",
        "evict",
        "load back",
    ]
