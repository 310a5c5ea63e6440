"""What a stream promises for a prompt, and what an engine served."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from command_line import read, read_json, usage_error
from kvcanon.live.follower import Follower
from kvcanon.live.overlap import AnnouncedPages, Overlap
from kvcanon.live.recording import StreamRecorder
from kvcanon.live.served import ServedRequest, mismatch_of
from kvcanon.live.subscriber import Frame, Source
from sent_events import CLEARED, batch, remove, store

PROMPT = [*range(10, 14), *range(20, 24), *range(30, 34), 99]
"""Three pages of 4 tokens, and a last token."""
PAGES = store([10, 20, 30])


def recorded(path: Path, *batches: list[dict[str, Any]]) -> str:
    """A recording with a batch each second, the first at second 1."""
    with StreamRecorder(path, [Source("tcp://engine:5557")]) as recorder:
        for number, events in enumerate(batches):
            recorder.write(Frame(0, b"", number, batch(*events), 1.0 + number))
    return str(path)


def logged(path: Path, *requests: dict[str, Any]) -> str:
    """A log of requests."""
    path.write_text("\n".join(json.dumps(each) for each in requests) + "\n", encoding="utf-8")
    return str(path)


def request(time: float, cached: int, **more: object) -> dict[str, Any]:
    """A line of a log."""
    return {"time": time, "tokens": PROMPT, "cached_tokens": cached, **more}


def pages_after(*batches: list[dict[str, Any]]) -> AnnouncedPages:
    """The pages that batches announce."""
    pages = AnnouncedPages(Follower())
    for number, events in enumerate(batches):
        pages.follower.take(number, batch(*events))
        pages.note(batch(*events))
    return pages


def test_overlap_is_the_leading_pages_by_tier() -> None:
    """Pages count up to the first that is nowhere; each is on its nearest tier."""
    host = store([10, 20], medium="CPU_PINNED")
    leaf = remove([30])
    leaf["block_hashes"] = PAGES["block_hashes"][2:]
    pages = pages_after([CLEARED, PAGES, host])
    assert pages.overlap(PROMPT) == Overlap(12, 12, {"device": 12})
    pages = pages_after([CLEARED, PAGES, host], [leaf])
    assert pages.overlap(PROMPT) == Overlap(8, 8, {"device": 8})
    middle = {**leaf, "block_hashes": PAGES["block_hashes"][1:2]}
    pages = pages_after([CLEARED, PAGES, host], [leaf], [middle])
    assert pages.overlap(PROMPT) == Overlap(4, 8, {"device": 4, "host": 4})


def test_last_token_and_other_namespaces_are_not_promised() -> None:
    """The last token is always computed; a salt is another beginning."""
    pages = pages_after([CLEARED, PAGES])
    assert pages.overlap(PROMPT[:-1]) == Overlap(8, 8, {"device": 8})
    assert pages.overlap(PROMPT, "tenant") == Overlap(0, 0, {})


def test_several_ranks_and_groups_promise_nothing_known() -> None:
    """It is not known which rank gets a request, nor which group decides."""
    grouped = {**PAGES, "group_idx": 1}
    assert pages_after([CLEARED, PAGES, grouped]).overlap(PROMPT) is None
    pages = pages_after([CLEARED, PAGES])
    pages.note(batch(PAGES, rank=1))
    assert pages.overlap(PROMPT) is None


@pytest.mark.parametrize(
    ("cached", "tiers", "partly", "kind"),
    [
        (8, None, False, None),
        (12, None, False, None),
        (4, None, False, "promised and not served"),
        (4, None, True, None),
        (16, None, True, "served and not promised"),
        (12, {"device": 8, "host": 4}, False, None),
        (8, {"device": 8, "host": 0}, False, None),
        (12, {"device": 12, "host": 0}, False, "served and not promised"),
        (8, {"device": 4, "host": 4}, False, "promised and not served"),
    ],
)
def test_service_is_held_to_the_promise(
    cached: int, tiers: dict[str, int] | None, partly: bool, kind: str | None
) -> None:
    """On the device exactly, on other tiers at most; with a window at most on all."""
    promised = Overlap(8, 12, {"device": 8, "host": 4})
    served = ServedRequest(tuple(PROMPT), cached, tiers)
    found = mismatch_of(promised, served, partly=partly)
    assert (found.kind if found else None) == kind


def test_audit_compares_each_request_with_the_stream_before_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lines may be in any order; one before the first clear is not compared."""
    stream = recorded(tmp_path / "a.kvstream", [CLEARED], [PAGES], [CLEARED])
    log = logged(tmp_path / "a.jsonl", request(2.5, 12), request(1.5, 0), request(0.5, 4))
    printed = read(capsys, "audit", stream, "--served", log)
    assert "2 requests beside the stream" in printed
    assert "tokens promised: 12 device; served: 12 any" in printed
    assert "not compared: 1 requests" in printed
    assert "Every request was served as the stream promised." in printed
    log = logged(tmp_path / "b.jsonl", request(1.5, 4), request(2.5, 8), request(3.5, 0))
    served = read_json(capsys, "audit", stream, "--served", log, code=1)["served"]
    assert [(each["line"], each["kind"]) for each in served["mismatches"]] == [
        (1, "served and not promised"),
        (2, "promised and not served"),
    ]
    served = read_json(capsys, "audit", stream, "--served", log, "--windowed", code=1)["served"]
    assert [each["line"] for each in served["mismatches"]] == [1]


def test_log_that_is_none_gives_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line is named, and what it lacks."""
    stream = recorded(tmp_path / "a.kvstream", [CLEARED])
    log = logged(tmp_path / "a.jsonl", request(1.0, 0), {"tokens": [1]})
    assert "line 2: no request with tokens, cached_tokens and time" in usage_error(
        capsys, "audit", stream, "--served", log
    )
    missing = str(tmp_path / "none.jsonl")
    assert "cannot be read" in usage_error(capsys, "audit", stream, "--served", missing)
    assert "give the log by --served" in usage_error(capsys, "audit", stream, "--windowed")
    both = ("--served", log, "--against", stream)
    assert "give one of them" in usage_error(capsys, "audit", stream, *both)
    assert "there is no 3" in usage_error(capsys, "audit", stream, "--served", log, "--source", "3")


def test_empty_log_is_no_proof(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where nothing was compared the audit ends with 1."""
    stream = recorded(tmp_path / "a.kvstream", [CLEARED], [PAGES])
    (tmp_path / "a.jsonl").write_text("\n", encoding="utf-8")
    printed = read(capsys, "audit", stream, "--served", str(tmp_path / "a.jsonl"), code=1)
    assert "No request could be compared" in printed
