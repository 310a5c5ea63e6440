"""What a stream promises for a prompt, and what an engine served."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from command_line import read, read_json, usage_error
from kvcanon.conformance.cli import main
from kvcanon.live.follower import FollowerConfig
from kvcanon.live.served import Overlap, ServedRequest, mismatch_of, overlap
from sent_events import CLEARED, followed, frame, frames_of, recorded, remove, store

PROMPT = [*range(10, 14), *range(20, 24), *range(30, 34), 99]
"""Three pages of 4 tokens, and a last token."""
PAGES = store([10, 20, 30])


def stream(path: Path, *batches: list[dict[str, Any]]) -> str:
    """A recording with a batch each second, the first at second 1."""
    return str(recorded(path, frames_of(*batches)).path)


def logged(path: Path, *requests: dict[str, Any]) -> str:
    """A log of requests."""
    path.write_text("\n".join(json.dumps(each) for each in requests) + "\n", encoding="utf-8")
    return str(path)


def request(time: float, cached: int, **more: object) -> dict[str, Any]:
    """A line of a log."""
    return {"time": time, "tokens": PROMPT, "cached_tokens": cached, **more}


FINDING = FollowerConfig(finding_prompts=True)


def promised(*batches: list[dict[str, Any]], tokens: list[int] = PROMPT, **space: str) -> object:
    """What batches promise for a prompt."""
    follower, _ = followed(*batches, config=FINDING)
    return overlap(follower, tokens, **space)


def test_overlap_is_the_leading_pages_by_tier() -> None:
    """Pages count up to the first that is nowhere; each is on its nearest tier."""
    host = store([10, 20], medium="CPU_PINNED")
    leaf = remove([30])
    leaf["block_hashes"] = PAGES["block_hashes"][2:]
    assert promised([CLEARED, PAGES, host]) == Overlap(12, 12, {"device": 12})
    assert promised([CLEARED, PAGES, host], [leaf]) == Overlap(8, 8, {"device": 8})
    middle = {**leaf, "block_hashes": PAGES["block_hashes"][1:2]}
    assert promised([CLEARED, PAGES, host], [leaf], [middle]) == Overlap(
        4, 8, {"device": 4, "host": 4}
    )


def test_last_token_and_other_namespaces_are_not_promised() -> None:
    """The last token is always computed; a salt is another beginning."""
    assert promised([CLEARED, PAGES], tokens=PROMPT[:-1]) == Overlap(8, 8, {"device": 8})
    assert promised([CLEARED, PAGES], tokens=[10 + 2**32, 11, 12, 13, 99]) == Overlap(0, 0, {})


@pytest.mark.parametrize(
    ("stored", "salt", "lora"),
    [
        ({}, "", ""),
        ({"cache_salt": ""}, "", ""),
        ({"cache_salt": "tenant"}, "tenant", ""),
        ({"lora_name": "tuned"}, "", "tuned"),
        ({"extra_keys": [["tenant"], None, None]}, "tenant", ""),
        (
            {"lora_name": "tuned", "extra_keys": [["tuned", "tenant"], None, None]},
            "tenant",
            "tuned",
        ),
        ({"extra_key": "of no log"}, "", ""),
    ],
)
def test_a_prompt_is_promised_in_its_namespace(
    stored: dict[str, object], salt: str, lora: str
) -> None:
    """Salt and LoRA are those of the first page, as SGLang and vLLM send them, and no others."""
    sent = [CLEARED, PAGES | stored]
    for asked_salt in ("", "tenant", "another"):
        for asked_lora in ("", "tuned"):
            there = 12 if (asked_salt, asked_lora) == (salt, lora) else 0
            found = promised(sent, salt=asked_salt, lora=asked_lora)
            assert found == Overlap(there, there, {"device": there} if there else {})


def test_a_page_is_known_by_an_earlier_announcement() -> None:
    """A store without tokens is of the page that was stored with them before it left."""
    hashes = PAGES["block_hashes"]
    bare = {**PAGES, "token_ids": [], "block_size": 0, "medium": "CPU_PINNED"}
    assert promised([CLEARED, PAGES], [remove(hashes[::-1])], [bare]) == Overlap(
        0, 12, {"host": 12}
    )


def test_several_ranks_and_groups_promise_nothing_known() -> None:
    """It is not known which rank gets a request, nor which group decides."""
    grouped = {**PAGES, "group_idx": 1}
    assert promised([CLEARED, PAGES, grouped]) is None
    follower, _ = followed([CLEARED, PAGES], config=FINDING)
    follower.take(frame(1, PAGES, rank=1))
    assert overlap(follower, PROMPT) is None


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
    recording = stream(tmp_path / "a.kvstream", [CLEARED], [PAGES], [CLEARED])
    log = logged(tmp_path / "a.jsonl", request(2.5, 12), request(1.5, 0), request(0.5, 4))
    printed = read(capsys, "audit", recording, "--served", log)
    assert "2 requests beside the stream" in printed
    assert "tokens promised: 12 device; served: 12 any" in printed
    assert "not compared: 1 requests" in printed
    assert "Every request was served as the stream promised." in printed
    log = logged(tmp_path / "b.jsonl", request(1.5, 4), request(2.5, 8), request(3.5, 0))
    served = read_json(capsys, "audit", recording, "--served", log, code=1)["served"]
    assert [(each["line"], each["kind"]) for each in served["mismatches"]] == [
        (1, "served and not promised"),
        (2, "promised and not served"),
    ]
    served = read_json(capsys, "audit", recording, "--served", log, "--windowed", code=1)["served"]
    assert [each["line"] for each in served["mismatches"]] == [1]


def test_log_that_is_none_gives_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line is named, and what it lacks."""
    recording = stream(tmp_path / "a.kvstream", [CLEARED])
    log = logged(tmp_path / "a.jsonl", request(1.0, 0), {"tokens": [1]})
    assert "line 2: no request with tokens, cached_tokens and time" in usage_error(
        capsys, "audit", recording, "--served", log
    )
    missing = str(tmp_path / "none.jsonl")
    assert "cannot be read" in usage_error(capsys, "audit", recording, "--served", missing)
    assert "give the log by --served" in usage_error(capsys, "audit", recording, "--windowed")
    both = ("--served", log, "--against", recording)
    assert "give one of them" in usage_error(capsys, "audit", recording, *both)
    assert "there is no 3" in usage_error(
        capsys, "audit", recording, "--served", log, "--source", "3"
    )


def test_empty_log_is_no_proof(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where nothing was compared the audit ends with 1."""
    recording = stream(tmp_path / "a.kvstream", [CLEARED], [PAGES])
    (tmp_path / "a.jsonl").write_text("\n", encoding="utf-8")
    printed = read(capsys, "audit", recording, "--served", str(tmp_path / "a.jsonl"), code=1)
    assert "No request could be compared" in printed


ODD = {
    "nan": "NaN",
    "inf": "Infinity",
    "large": "1" + "0" * 400,
    "negative": "-5",
    "text": '"x"',
    "list": "[1]",
    "object": '{"a": {}}',
    "half": "1.5",
    "true": "true",
    "e400": "1e400",
    "surrogate": r'"\ud800"',
    "digits": "9" * 5000,
    "deep": "[" * 100_000,
}
FIELDS = {
    "tokens": '{"tokens": %s, "cached_tokens": 0, "time": 1}',
    "a token": '{"tokens": [1, %s], "cached_tokens": 0, "time": 1}',
    "cached_tokens": '{"tokens": [1], "cached_tokens": %s, "time": 1}',
    "time": '{"tokens": [1], "cached_tokens": 0, "time": %s}',
    "salt": '{"tokens": [1], "cached_tokens": 0, "time": 1, "cache_salt": %s}',
    "details": '{"tokens": [], "cached_tokens": 0, "time": 1, "cached_tokens_details": %s}',
    "a tier": '{"tokens": [], "cached_tokens": 0, "time": 1, "cached_tokens_details": {"a": %s}}',
    "what is unknown": '{"tokens": [1], "cached_tokens": 0, "time": 1, "more": %s}',
    "the line": "%s",
}


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", ODD)
def test_odd_values_of_a_log_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], field: str, value: str
) -> None:
    """Or, where a field may have the value, no error: none is a traceback."""
    log = tmp_path / "log"
    log.write_text(FIELDS[field] % ODD[value], encoding="utf-8")
    good = stream(tmp_path / "a", [CLEARED, PAGES])
    code = main(["audit", good, "--served", str(log)])
    printed = capsys.readouterr()
    may_be = {
        *(("tokens", "list"), ("time", "negative"), ("time", "half"), ("salt", "text")),
        *(("what is unknown", each) for each in ODD),
    }
    if (field, value) not in may_be:
        assert code == 2
    if code == 2:
        assert "log, line 1: no request with tokens, cached_tokens and time" in printed.err
        assert len(printed.err.splitlines()) == 1
        assert len(printed.err) < 500


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_log_of_windows_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], encoding: str
) -> None:
    """With a mark first, in UTF-16, and with line ends of two characters."""
    log = tmp_path / "log"
    lines = [json.dumps(request(time, 12)) for time in (1.5, 2.5)]
    log.write_bytes("\r\n".join(lines).encode(encoding))
    good = stream(tmp_path / "a", [CLEARED, PAGES])
    assert read_json(capsys, "audit", good, "--served", str(log))["served"]["requests"] == 2
