"""Runs `kvcanon audit`; apart, since it needs the extra `live`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
from attrs import asdict, frozen
from rich.console import Console
from rich.text import Text

from kvcanon.conformance.cli.exit_codes import BROKEN
from kvcanon.conformance.cli.served_report import served_json, served_lines
from kvcanon.conformance.cli.terminal import (
    ReportConsole,
    figures_table,
    print_json,
    print_title,
)
from kvcanon.conformance.errors import UsageError
from kvcanon.live.against import Comparison, compare
from kvcanon.live.audit import AuditResult, audit
from kvcanon.live.dashboard import amount, place_of
from kvcanon.live.decode import SentEvent, key_of
from kvcanon.live.excerpt import Excerpt
from kvcanon.live.faults import StreamFinding, shown_key
from kvcanon.live.follower import FollowerConfig, HashRule
from kvcanon.live.recording import BadRecording, Recording, open_recording
from kvcanon.live.served import audit_served
from kvcanon.spec.law import LAWS

FORMAT = 1
_SHOWN_TOKENS = 8


@frozen
class AuditOptions:
    """What the command line asks for."""

    recording: Path
    against: Path | None
    served: Path | None
    windowed: bool
    sources: tuple[int, int]
    hashes: str
    closed_host: bool
    ignored: frozenset[str]
    excerpts: int
    as_json: bool


def run_audit(options: AuditOptions) -> int:
    """Judge a recording, or compare two. Raises: UsageError."""
    config = FollowerConfig(
        hashes=HashRule[options.hashes.upper()],
        host_is_closed=options.closed_host,
        ignored=options.ignored,
    )
    try:
        recording = open_recording(options.recording)
        if options.against is not None:
            return _compare(options, recording, open_recording(options.against), config)
        result = audit(recording, config, options.excerpts)
        served = None
        if options.served is not None:
            source = checked_source(recording, options.sources[0])
            served = audit_served(
                recording, options.served, config, source, partly=options.windowed
            )
    except BadRecording as error:
        raise UsageError(str(error)) from error
    if options.as_json:
        beside = {} if served is None else {"served": served_json(served)}
        print_json(_as_json(recording, result) | beside)
    else:
        out = ReportConsole()
        _print(out, recording, result)
        for line in () if served is None else served_lines(served):
            out.print(line, markup=False, highlight=False, soft_wrap=True)
    wrong = result.total or not result.events or (served is not None and not served.holds)
    return BROKEN if wrong else 0


def _print(out: Console, recording: Recording, result: AuditResult) -> None:
    rate = result.pages / result.seconds if result.seconds else 0.0
    print_title(out, "kvcanon audit", str(recording.path))
    out.print(
        f"{result.events} events, {result.pages} blocks stored or removed, folded in "
        f"{result.seconds:.2f} s ({amount(rate)} a second)"
    )
    if recording.cut_off:
        out.print(f"The recording was cut off: {recording.cut_off} bytes at its end are no block.")
    table = figures_table("stream", "batches", "lost", "malformed", "rank", "held", "violations")
    for stream in result.streams:
        held = {book.rank: book.blocks() for book in stream.books}
        table.add_row(
            Text(stream.source.endpoint),
            str(stream.counts.batches),
            str(stream.counts.lost),
            str(stream.counts.malformed),
            ", ".join(str(rank) for rank in held),
            "; ".join(
                ", ".join(f"{number} {medium}" for medium, number in blocks.items())
                for blocks in held.values()
            ),
            str(sum(stream.counts.by_law.values())),
        )
    out.print(table)
    unverified = sum(b.counts["unverified"] for s in result.streams for b in s.books)
    if unverified:
        out.print(f"{unverified} hashes could not be computed from their tokens.")
    for excerpt in result.excerpts:
        for line in _excerpt_lines(excerpt):
            out.print(line, markup=False, soft_wrap=True)
    laws = ", ".join(f"{law} {number} times" for law, number in sorted(result.by_law.items()))
    sound = "No law is broken." if result.events else "There are no events, so no law was checked."
    out.print(f"BROKEN: {laws}" if laws else sound)


def _excerpt_lines(excerpt: Excerpt) -> Iterator[str]:
    finding = excerpt.finding
    yield ""
    yield f"{finding.law_id} at {place_of(finding)}: {finding.what}."
    if excerpt.steps:
        yield f"Shown by {len(excerpt.steps)} events:" if excerpt.shows else "Its events:"
    for step in excerpt.steps:
        yield f"  batch {step.sequence} event {step.event.index}: {_event_text(step.event)}"
    yield f"Wrongly believed: {finding.belief}"
    if finding.law_id in LAWS:
        yield f"The law: {LAWS[finding.law_id].address}"


def _event_text(event: SentEvent) -> str:
    """An event of an excerpt in one line."""
    if event.kind == "AllBlocksCleared":
        return "all blocks cleared"
    fields = event.fields
    blocks = " ".join(shown_key(key_of(each)) for each in event.hashes[:4])
    more = f" and {len(event.hashes) - 4} more" if len(event.hashes) > 4 else ""
    medium = fields.get("medium") or "GPU"
    if event.kind == "BlockRemoved":
        return f"removed {blocks}{more} from {medium}"
    parent = fields.get("parent_block_hash")
    after = "first" if parent is None else f"after {shown_key(key_of(parent))}"
    tokens = list(fields.get("token_ids") or ())
    shown = ", ".join(str(token) for token in tokens[:_SHOWN_TOKENS])
    dots = ", ..." if len(tokens) > _SHOWN_TOKENS else ""
    names = [f"{name} {fields[name]!r}" for name in ("cache_salt", "lora_name") if fields.get(name)]
    return f"stored {blocks}{more} on {medium}, {after}, tokens [{shown}{dots}] {' '.join(names)}"


def _as_json(recording: Recording, result: AuditResult) -> dict[str, object]:
    return {
        "format": FORMAT,
        "recording": str(recording.path),
        "cut_off_bytes": recording.cut_off,
        "seconds": result.seconds,
        "events": result.events,
        "pages": result.pages,
        "violations": result.total,
        "by_law": dict(result.by_law),
        "streams": [
            {
                "endpoint": stream.source.endpoint,
                "counts": asdict(stream.counts),
                "books": [
                    {"rank": b.rank, "group": b.group, "complete": b.complete, **b.counts}
                    for b in stream.books
                ],
            }
            for stream in result.streams
        ],
        "findings": [_finding_json(each) for each in result.findings],
        "excerpts": [
            {
                "finding": _finding_json(each.finding),
                "shows": each.shows,
                "events": [
                    {"batch": s.sequence, "event": msgspec.to_builtins(s.event.as_map())}
                    for s in each.steps
                ],
            }
            for each in result.excerpts
        ],
    }


def _finding_json(finding: StreamFinding) -> dict[str, object]:
    return {
        "law": finding.law_id,
        "address": LAWS[finding.law_id].address if finding.law_id in LAWS else None,
        "fault": finding.fault.name.lower(),
        "source": finding.source,
        "rank": finding.rank,
        "batch": finding.sequence,
        "event": finding.event,
        "block": shown_key(finding.key),
        "what": finding.what,
        "belief": finding.belief,
    }


def _compare(
    options: AuditOptions, first: Recording, second: Recording, config: FollowerConfig
) -> int:
    for recording, source in zip((first, second), options.sources, strict=True):
        checked_source(recording, source)
    result = compare(first, second, config, options.sources)
    if options.as_json:
        print_json(_comparison_json(result))
    else:
        for line in _comparison_lines(result, first.path, second.path):
            ReportConsole().print(line, markup=False, soft_wrap=True)
    return 0 if result.is_same_sum else BROKEN


def checked_source(recording: Recording, source: int) -> int:
    """The number of a publisher of a recording. Raises: UsageError."""
    if source >= len(recording.sources):
        raise UsageError(
            f"{recording.path} has {len(recording.sources)} publishers, "
            f"counted from 0; there is no {source}"
        )
    return source


def _comparison_lines(result: Comparison, first: Path, second: Path) -> Iterator[str]:
    both, one, other = result.resident
    yield f"{first}: {result.happenings[0]} blocks stored or removed"
    yield f"{second}: {result.happenings[1]}"
    yield f"In the end both hold {both}; {one} are in the first alone, {other} in the second alone."
    if result.is_equal:
        yield "The streams are equal, in order."
        return
    here, there = (str(each) if each else "nothing" for each in result.at_difference)
    yield f"They differ first at place {result.first_difference}: {here}, and {there}."
    for name, counts in (("first", result.only_first), ("second", result.only_second)):
        for kind, number in sorted(counts.items()):
            yield f"In the {name} alone: {number} blocks {kind}."
    if result.is_same_sum:
        yield "The same happened in both, in another order."
    else:
        yield "DIFFERENT: a router would send requests by one that the other does not serve."


def _comparison_json(result: Comparison) -> dict[str, object]:
    return {
        "format": FORMAT,
        "happenings": result.happenings,
        "first_difference": result.first_difference,
        "at_difference": [str(each) if each else None for each in result.at_difference],
        "only_first": dict(result.only_first),
        "only_second": dict(result.only_second),
        "resident": result.resident,
        "equal": result.is_equal,
        "same_sum": result.is_same_sum,
    }
