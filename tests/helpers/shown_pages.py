"""Pages that tests open in a browser, by name: each function writes its page into a folder."""

from __future__ import annotations

import json
import zlib
from base64 import b64decode
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from attrs import evolve

from kvcanon.conformance.cases.case import Action, Case
from kvcanon.conformance.judge.judges import ALL_JUDGES
from kvcanon.conformance.protocol.adapter import Adapter, make_subject
from kvcanon.conformance.replay.replay import replay
from kvcanon.conformance.replay.workloads.chat import Chat
from kvcanon.conformance.replay.workloads.request import Request
from kvcanon.conformance.report.html_page import Drawings, check_html
from kvcanon.conformance.show.case_run import drawn_findings, record_case
from kvcanon.conformance.show.page import show_page, show_script, show_style
from kvcanon.conformance.show.replay_run import ReplayRecorder
from kvcanon.conformance.show.rows import ROW_LENGTH, Row, StateRows
from kvcanon.conformance.show.shown_run import Breach, ShownRun, ShownStep
from kvcanon.conformance.show.step_packer import StepPacker
from kvcanon.conformance.show.stream_run import record_stream
from kvcanon.conformance.vectors import read_vectors
from kvcanon.lab.bench.large_run import LargeRun
from kvcanon.live.frames import Arrived, BrokenFrame, Frame
from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.law import Need
from kvcanon.spec.types import Counts, Namespace, Slots, WritePolicy
from sample_reports import faulty
from sent_events import CLEARED, batch, recorded, remove, store, tail

VECTOR = next(each for each in read_vectors() if each.vector_id == "LOAD-1-a")
VIOLATION = Case(
    CacheConfig(window_tokens=1, device_slots=Counts(full=2, swa=2)),
    (Action("admit"), Action("abort")),
    drain=(),
)
REFERENCE = Adapter("reference", ReferenceCache)
ENDLESS = "Ω\u202e\u05d0\u05d1" * 1000
HOSTILE = "</script><script>document.title = 'broken out'</script>"


class Forgetful(ReferenceCache):
    """A cache that forgets the window slots of what is freed."""

    def free(self, slots: Slots) -> None:
        super().free(Slots(full=slots.full, mamba=slots.mamba))


class Fragile(ReferenceCache):
    """A cache that crashes when slots are freed."""

    def free(self, slots: Slots) -> None:
        raise KeyError(f"node 1 has no slots {slots.full}")


def vector_run() -> ShownRun:
    """The run of a vector."""
    return record_case(VECTOR.case, REFERENCE, ALL_JUDGES, "Vector LOAD-1-a")


def violation_run() -> ShownRun:
    """The run of a case that breaks a law at its last call."""
    forgetful = Adapter("forgetful", Forgetful)
    return record_case(VIOLATION, forgetful, ALL_JUDGES, "ALLOC-3 counts_are_true")


def hidden_run() -> ShownRun:
    """The run of a cache that shows events and no state."""
    hides = frozenset({Need.SNAPSHOT})
    return record_case(
        VECTOR.case, Adapter("secretive", ReferenceCache, hides=hides), ALL_JUDGES, "Hidden"
    )


def silent_run() -> ShownRun:
    """The run of a cache that shows neither its state nor events, and that crashes."""
    hides = frozenset({Need.SNAPSHOT, Need.EVENTS})
    return record_case(VIOLATION, Adapter("silent", Fragile, hides=hides), ALL_JUDGES, "Silent")


def replay_run(
    requests: tuple[Request, ...] | None = None,
    steps: int = 400,
    adapter: Adapter = REFERENCE,
) -> ShownRun:
    """The run of a replay with a host tier and a window."""
    config = CacheConfig(
        page_size=8,
        window_tokens=64,
        device_slots=Counts(full=96, swa=48),
        host_slots=Counts(full=128, swa=64),
        write_policy=WritePolicy.WRITE_BACK,
    )
    subject = make_subject(adapter, config, own_copies=True)
    recorder = ReplayRecorder(subject, most_steps=steps)
    chosen = Chat(conversations=12, seed=1).requests() if requests is None else requests
    replay(subject, chosen, watch=recorder)
    return recorder.run("Replay", (("cache", "reference"),))


def endless_run() -> ShownRun:
    """A run of one step with names that have no end and no place to break."""
    case = Case(VIOLATION.config, VIOLATION.actions[:1], drain=())
    run = record_case(case, REFERENCE, ALL_JUDGES, ENDLESS)
    return evolve(run, facts=(("cache", ENDLESS), *run.facts))


def hostile_run() -> ShownRun:
    """A run with names that are markup, and with the largest tokens."""
    spaces = [Namespace(lora=f"{HOSTILE}{n}") for n in range(40)]
    requests = [
        Request(40, lambda: tuple(range(2**32 - 40, 2**32)), namespace=space) for space in spaces
    ]
    return evolve(replay_run(tuple(requests)), title=HOSTILE, notes=(HOSTILE,))


def broken_tree_run() -> ShownRun:
    """A run that begins with a tree that is none: a circle, and a parent that is missing."""

    def row(parent: int, tokens: str) -> Row:
        return [parent, 0, tokens, *[0] * (ROW_LENGTH - 4), ""]

    def first(state: StateRows) -> None:
        rows = {0: row(-1, ""), 1: row(0, "5 6"), 2: row(9, "7"), 3: row(4, "8"), 4: row(3, "9")}
        state.change(dict(rows), root=0)

    packer = StepPacker(None, first=first)
    breach = Breach(
        "TREE-1 one_root", "node 3 and node 4 lead to each other; node 99 is gone", "", "TREE-1"
    )
    packer.add_delta(ShownStep(0, 1, "match(key)", "done", breaches=(breach,)), None)
    return ShownRun("Broken", (), CacheConfig(), "action", steps=1, parts=packer.parts())


def empty_run() -> ShownRun:
    """A run without a step."""
    return replay_run(())


def stream_run(folder: Path, failure: str | None = None) -> ShownRun:
    """The run of a recording of two publishers, with a violation of each kind of place."""
    path, prompt = folder / "two.kvstream", store(range(0, 40, 4))
    hashes = prompt["block_hashes"]
    batches: list[list[dict[str, Any]]] = [
        [CLEARED],
        [prompt, store([0, 400], cache_salt=HOSTILE)],
        [store([0, 100])],  # Its first block is there.
        [tail(prompt, 9) | {"medium": "CPU"}],
        [remove([hashes[5]])],  # Those after it stay.
        [tail(prompt, 9) | {"block_hashes": [99], "parent_block_hash": 77}],
        [CLEARED],
    ]
    arrived: list[Arrived] = [
        Frame(source, b"kv", number + missing, batch(*events), 5.0 + number)
        for number, events in enumerate(batches)
        for source, missing in ((0, 0), (1, 3 * (number > 3)))
    ]
    arrived.append(BrokenFrame(0, "has 2 parts", 13.0))
    return record_stream(recorded(path, arrived, "tcp://one:5557", "tcp://two:5557"), failure)


def unpacked(run: ShownRun, part: str) -> Any:  # noqa: ANN401  # JSON
    """A part of a run."""
    return json.loads(zlib.decompress(b64decode(run.parts[part])))


def stream_text() -> str:
    """The page of a recording."""
    with TemporaryDirectory() as folder:
        return show_page(stream_run(Path(folder)))


def report_text() -> str:
    """The report of a check with failures, with a run for each."""
    report = faulty()
    drawn = drawn_findings(report, 0)
    return check_html(report, Drawings(drawn, show_style(), show_script()))


def _shown(run: Callable[[], ShownRun]) -> Callable[[], str]:
    return lambda: show_page(run())


PAGES: Mapping[str, Callable[[], str]] = {
    "vector": _shown(vector_run),
    "violation": _shown(violation_run),
    "hidden": _shown(hidden_run),
    "silent": _shown(silent_run),
    "replay": _shown(replay_run),
    "hostile": _shown(hostile_run),
    "endless": _shown(endless_run),
    "broken": _shown(broken_tree_run),
    "empty": _shown(empty_run),
    "large": _shown(lambda: LargeRun(12_000).record(60)),
    "stream": stream_text,
    "report": report_text,
}
"""The text of each page that is looked at in a browser."""


def write_page(name: str, folder: Path) -> Path:
    """Write a page into a folder."""
    path = folder / f"{name}.html"
    if not path.exists():
        path.write_text(PAGES[name](), encoding="utf-8")
    return path
