"""Recordings of streams as runs: what each batch stored and removed, and what it breaks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from command_line import read, usage_error
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.show import stream_run as module
from kvcanon.conformance.show.event_rows import EventRows
from kvcanon.conformance.show.stream_run import pages_sent, record_stream
from kvcanon.live.audit import audit
from kvcanon.live.decode import SentEvent
from kvcanon.live.frames import Frame
from kvcanon.live.stream_recording import open_recording
from kvcanon.spec.events import AllBlocksCleared, BlockStored
from kvcanon.spec.types import CPU, GPU, Medium
from sent_events import CLEARED, frames_of, recorded, remove, store, tail
from shown_pages import stream_run, unpacked


def long_stream(batches: int, wrong_at: int | None = None) -> list[Frame]:
    """A stream in which each batch stores a block and drops the one before."""
    sent: list[list[dict[str, Any]]] = [[CLEARED]]
    for number in range(1, batches):
        dropped = [remove(sent[-1][0]["block_hashes"])] if number > 1 else []
        wrong = [remove([5])] if number == wrong_at else []
        sent.append([store([4 * number]), *dropped, *wrong])
    return frames_of(*sent)


def test_each_violation_is_at_its_batch(tmp_path: Path) -> None:
    """The violations are those of an audit, at the batches that break them, and name nodes."""
    run = stream_run(tmp_path)
    table = unpacked(run, "steps")
    found = {step: [each["title"].split()[0] for each in some] for step, some in table["breaches"]}
    audited = audit(open_recording(tmp_path / "two.kvstream")).streams
    assert sum(map(len, found.values())) == audited.total
    assert {law for laws in found.values() for law in laws} == set(audited.by_law())
    assert found == {
        5: ["EVENT-2"],
        6: ["EVENT-2"],
        9: ["EVENT-12"],
        10: ["WIRE-1"],
        11: ["EVENT-1"],
        15: ["WIRE-2"],
    }
    assert run.opens_at == run.breaks_at == 5
    breaches = dict(table["breaches"])
    assert "(node 1) was stored on GPU, where it was already. A router" in breaches[5][0]["text"]
    assert breaches[5][0]["address"].endswith("/laws/EVENT-2/")
    assert "block 0000000000000063 (node 27) was stored" in breaches[11][0]["text"]
    assert breaches[10][0]["address"] == ""
    assert "numbered from 0" in breaches[10][0]["statement"]
    assert table["drawn"] == "events"


def test_blocks_are_those_that_events_say(tmp_path: Path) -> None:
    """Books are apart, a clear empties one, and what is not counted changes nothing."""
    run = stream_run(tmp_path)
    (chart,) = run.charts
    assert chart.lines["GPU"][:6] == [0, 0, 0, 12, 24, 25]
    assert chart.lines["CPU_PINNED"][7:9] == [1, 2]
    assert chart.lines["GPU"][13:] == [13, 0, 0]
    words = unpacked(run, "steps")["namespaces"]
    assert {"publisher 0", "publisher 1"} <= set(words)
    assert any(each.startswith("publisher 1, cache_salt ") for each in words)
    last = unpacked(run, "steps")["steps"][-1]
    assert last[2:] == [
        "no batch, at 8.000 s",
        "not counted: batch 7 cannot be read: has 2 parts",
        1,
    ]


def test_another_violation_is_chosen(tmp_path: Path) -> None:
    """--failure opens the page there; a wrong number is named."""
    assert stream_run(tmp_path, "3").opens_at == 9
    with pytest.raises(UsageError, match="has no violation 8; give --failure 1 to 6"):
        stream_run(tmp_path, "8")


@pytest.mark.parametrize("wrong_at", [None, 2, 90, 199])
def test_a_long_recording_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong_at: int | None
) -> None:
    """So many batches are shown, the violation among them, and the first state is as it was."""
    monkeypatch.setattr(module, "MOST_BATCHES", 40)
    run = record_stream(recorded(tmp_path / "a", long_stream(200, wrong_at)))
    assert run.steps == 40 if wrong_at in (None, 2, 90) else run.steps >= 30
    assert run.breaks_at == run.opens_at
    assert any("of 200 are shown" in note for note in run.notes)
    shown = unpacked(run, "steps")["steps"]
    first = int(shown[0][2].split()[1].rstrip(","))
    assert len(unpacked(run, "state-0")["rows"]) - 1 == (1 if first > 1 else 0)
    if wrong_at is not None:
        assert run.opens_at is not None
        assert shown[run.opens_at - 1][2].startswith(f"batch {wrong_at},")


def test_blocks_of_no_shown_batch_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a large first state those blocks are kept that are spoken of, and those before them."""
    monkeypatch.setattr(module, "MOST_BLOCKS", 12)
    prompt, other = store(range(0, 40, 4)), store(range(4000, 4040, 4))
    removed = remove(other["block_hashes"][:-4:-1])
    sent = frames_of([CLEARED], [prompt], [other], [removed], [remove([1])])
    run = record_stream(recorded(tmp_path / "a", sent))
    assert len(unpacked(run, "state-0")["rows"]) == 1 + 10
    assert any(note.startswith("10 blocks of the first state are left out") for note in run.notes)
    assert run.charts[0].lines["GPU"] == [20, 17, 17]


def test_a_malformed_batch_changes_nothing(tmp_path: Path) -> None:
    """Of a batch that cannot be read whole no event is drawn, as no router takes one of it."""
    whole, broken = store([0, 4]), store([12]) | {"token_ids": ["a"] * 4}
    sent = frames_of([CLEARED], [whole], [store([8]), broken])
    run = record_stream(recorded(tmp_path / "a", sent))
    assert run.charts[0].lines["GPU"] == [0, 0, 2, 2]
    assert unpacked(run, "steps")["steps"][-1][3].startswith("not counted: batch 2 cannot be read")


def test_events_in_every_form_become_pages() -> None:
    """Bigrams, layers of arrays, missing tokens and unknown media are read as far as they go."""

    def pages(**fields: object) -> list[Any]:
        return list(pages_sent(SentEvent(0, "BlockStored", fields)))

    hashes = {"block_hashes": [1, -2], "block_size": 2}
    (first, second) = pages(**hashes, token_ids=[[1, 2], [2, 3], [3, 4], [4, 5]], lora_id=7)
    assert first == BlockStored(bytes(7) + b"\1", None, ((1, 2), (2, 3)), GPU, first.namespace)
    assert first.namespace.lora == "7"
    assert second.parent_hash == first.block_hash
    assert second.block_hash == b"\xff" * 7 + b"\xfe"
    assert [each.page for each in pages(**hashes, token_ids=[1, 2, 3], medium="CPU")] == [(), ()]
    assert pages(**hashes, medium="CPU")[0].medium is CPU
    assert pages(**hashes, medium="tape") == []
    (extra, _) = pages(**hashes, extra_keys=[["salt", 3], None])
    assert extra.namespace.extra_key == "salt, 3"


def test_a_block_without_its_parent_is_drawn_apart() -> None:
    """A page whose parent was not stored is no child of the root, nor beside it."""
    rows = EventRows()
    prompt = list(pages_sent(SentEvent(0, "BlockStored", tail(store([0, 4]), 1))))
    rows.move_to(prompt)
    (orphan,) = (row for node_id, row in rows.now.rows.items() if node_id)
    assert orphan[0] == -2
    assert "was not stored" in str(orphan[-1])
    rows.move_to([AllBlocksCleared()])
    assert list(rows.now.rows) == [0]
    assert not any(map(rows.blocks, Medium))


def test_page_of_a_recording_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`kvcanon show` takes a recording; what is wrong with one, or with the call, is one line."""
    monkeypatch.chdir(tmp_path)
    stream_run(tmp_path)
    assert "two.show.html: two.kvstream, 15 steps, breaks at step 5" in read(
        capsys, "show", "two.kvstream"
    )
    whole = Path("two.kvstream").read_bytes()
    Path("bad.kvstream").write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    recorded(Path("none.kvstream"), [])
    for arguments, says in (
        (
            ("two.kvstream", "--cache", "reference"),
            "--cache reference is for calls that are played",
        ),
        (("bad.kvstream",), "bad.kvstream is damaged at byte"),
        (("none.kvstream",), "none.kvstream has no batch to show"),
        (("two.kvstream", "--failure", "x"), "has no violation x; give --failure 1 to 6"),
    ):
        assert says in usage_error(capsys, "show", *arguments)
