"""What `kvcanon audit` prints: the result of an audit, or how two streams differ.

Apart from the command, since it needs the extra `live`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from rich.console import Console
from rich.text import Text

from kvcanon.conformance.cli.terminal import (
    ReportConsole,
    figures_table,
    print_json,
    print_lines,
    print_title,
)
from kvcanon.live.against import Comparison
from kvcanon.live.audit import AuditResult, Excerpt
from kvcanon.live.dashboard import amount
from kvcanon.live.decode import SentEvent, key_of
from kvcanon.live.findings import finding_fields, place_of
from kvcanon.live.served import LAW, ServedAudit
from kvcanon.live.stream_faults import shown_key
from kvcanon.live.stream_recording import Recording
from kvcanon.printable import printable
from kvcanon.spec.law import LAWS

FORMAT = 1
_SHOWN_TOKENS = 8
_SHOWN_MISMATCHES = 10


def print_audit(
    recording: Recording, result: AuditResult, served: ServedAudit | None, *, as_json: bool
) -> None:
    """Print the result of an audit, and the comparison with what was served."""
    if as_json:
        beside = {} if served is None else {"served": _served_json(served)}
        print_json(_as_json(recording, result) | beside)
        return
    out = ReportConsole()
    _print_result(out, recording, result)
    print_lines(out, () if served is None else _served_lines(served))


def print_comparison(result: Comparison, first: Path, second: Path, *, as_json: bool) -> None:
    """Print how two streams differ."""
    if as_json:
        print_json(_comparison_json(result))
        return
    out = ReportConsole()
    print_lines(out, _comparison_lines(result, first, second))


def _print_result(out: Console, recording: Recording, result: AuditResult) -> None:
    streams = result.streams
    rate = streams.pages / result.seconds if result.seconds else 0.0
    print_title(out, "kvcanon audit", str(recording.path))
    out.print(
        f"{streams.events} events, {streams.pages} blocks stored or removed, folded in "
        f"{result.seconds:.2f} s ({amount(rate)} a second)"
    )
    if recording.masked:
        out.print("Its tokens are masked: whether hashes follow from them is not judged.")
    if recording.cut_off:
        out.print(f"The recording was cut off: {recording.cut_off} bytes at its end are no block.")
    table = figures_table("stream", "batches", "lost", "malformed", "violations")
    for stream in streams.followers:
        table.add_row(
            Text(printable(recording.sources[stream.source].endpoint)),
            str(stream.counts.batches),
            str(stream.counts.lost),
            str(stream.counts.malformed),
            str(sum(stream.counts.by_law.values())),
        )
    out.print(table)
    held = figures_table("in the end", "rank", "blocks", "repeated", "not judged")
    for stream in streams.followers:
        for book in stream.books():
            blocks = ", ".join(f"{number} {tier}" for tier, number in book.blocks().items())
            held.add_row(
                Text(" ".join(filter(None, (f"stream {stream.source}", book.group_words)))),
                str(book.rank),
                printable(blocks),
                str(book.counts["repeated"]),
                str(book.counts["unjudged"]),
            )
    out.print(held)
    unverified = sum(b.counts["unverified"] for s in streams.followers for b in s.books())
    if unverified:
        out.print(f"{unverified} hashes could not be computed from their tokens.")
    for excerpt in result.excerpts:
        print_lines(out, _excerpt_lines(excerpt))
    laws = ", ".join(f"{law} {number} times" for law, number in sorted(streams.by_law().items()))
    sound = "No law is broken." if streams.events else "There are no events, so no law was checked."
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
    shown_fields = ("cache_salt", "lora_name", "extra_keys", "ownership", "locality")
    names = [f"{name} {fields[name]!r}" for name in shown_fields if fields.get(name)]
    return f"stored {blocks}{more} on {medium}, {after}, tokens [{shown}{dots}] {' '.join(names)}"


def _as_json(recording: Recording, result: AuditResult) -> dict[str, object]:
    streams = result.streams
    return {
        "format": FORMAT,
        "recording": str(recording.path),
        "cut_off_bytes": recording.cut_off,
        "masked": recording.masked,
        "seconds": result.seconds,
        "events": streams.events,
        "pages": streams.pages,
        "violations": streams.total,
        "by_law": dict(streams.by_law()),
        "streams": [
            {
                "endpoint": recording.sources[stream.source].endpoint,
                "counts": stream.counts.as_plain(),
                "books": [
                    {
                        "rank": b.rank,
                        "group": b.group,
                        "complete": b.complete,
                        **b.counts,
                        "kind": b.kind.name.lower(),
                        "tiers": b.tiers,
                    }
                    for b in stream.books()
                ],
            }
            for stream in streams.followers
        ],
        "findings": [finding_fields(each) for each in streams.findings],
        "excerpts": [
            {
                "finding": finding_fields(each.finding),
                "shows": each.shows,
                "events": [
                    {"batch": s.sequence, "event": msgspec.to_builtins(s.event.as_map())}
                    for s in each.steps
                ],
            }
            for each in result.excerpts
        ],
    }


def _comparison_lines(result: Comparison, first: Path, second: Path) -> Iterator[str]:
    both, one, other = result.resident
    yield f"{first}: {result.happenings[0]} blocks stored or removed"
    yield f"{second}: {result.happenings[1]}"
    yield f"In the end both hold {both}; {one} are in the first alone, {other} in the second alone."
    if result.is_equal:
        yield "The streams are equal, in order."
        return
    here, there = (each or "nothing" for each in result.at_difference)
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
        "at_difference": result.at_difference,
        "only_first": dict(result.only_first),
        "only_second": dict(result.only_second),
        "resident": result.resident,
        "equal": result.is_equal,
        "same_sum": result.is_same_sum,
    }


def _served_lines(served: ServedAudit) -> Iterator[str]:
    """What was promised and served, and each request of which they differ."""
    sums = served.sums
    yield ""
    yield f"{sums.requests} requests beside the stream"
    yield f"  tokens promised: {_tiers_text(sums.promised)}; served: {_tiers_text(sums.served)}"
    if served.unknown:
        yield f"  not compared: {served.unknown} requests before the first clear, or of many ranks"
    for line, mismatch in served.mismatches[:_SHOWN_MISMATCHES]:
        yield f"{LAW}: line {line}: {mismatch.kind}: {mismatch.words}"
    if len(served.mismatches) > _SHOWN_MISMATCHES:
        yield f"{LAW}: {len(served.mismatches) - _SHOWN_MISMATCHES} more"
    if served.mismatches:
        yield f"BROKEN: {LAW} {len(served.mismatches)} times"
    elif not sums.requests:
        yield "No request could be compared, so nothing was checked."
    else:
        yield "Every request was served as the stream promised."


def _served_json(served: ServedAudit) -> dict[str, object]:
    """The same as plain values."""
    return {
        "requests": served.sums.requests,
        "not_compared": served.unknown,
        "promised": served.sums.promised,
        "served": served.sums.served,
        "mismatches": [
            {"line": line, "kind": each.kind, "law": LAW, "words": each.words}
            for line, each in served.mismatches
        ],
    }


def _tiers_text(tokens: Mapping[str, int]) -> str:
    """Tokens by tier, as text."""
    return ", ".join(f"{count} {tier}" for tier, count in sorted(tokens.items())) or "none"
