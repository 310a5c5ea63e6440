"""Findings as they are printed: a line of text, or a line of JSON."""

from __future__ import annotations

from datetime import UTC, datetime

from kvcanon.live.stream_faults import StreamFinding, shown_key
from kvcanon.printable import printable
from kvcanon.spec.law import LAWS


def finding_line(finding: StreamFinding, name: str = "") -> str:
    """A finding in one line, whatever text its publisher sent."""
    publisher = f"{name} " if name else ""
    return printable(f"{finding.law_id} {publisher}{place_of(finding)}: {finding.what}")


def place_of(finding: StreamFinding) -> str:
    """Where a finding is, as "source 0 rank 1 group 0 batch 7 event 1"."""
    rank = f" rank {finding.rank}" if finding.rank else ""
    group = "" if finding.group is None else f" group {finding.group}"
    return f"source {finding.source}{rank}{group} batch {finding.sequence} event {finding.event}"


def finding_fields(finding: StreamFinding) -> dict[str, object]:
    """A finding as plain values."""
    return {
        "law": finding.law_id,
        "address": LAWS[finding.law_id].address if finding.law_id in LAWS else None,
        "fault": finding.fault.name.lower(),
        "source": finding.source,
        "rank": finding.rank,
        "group": finding.group,
        "medium": finding.medium or None,
        "batch": finding.sequence,
        "event": finding.event,
        "block": shown_key(finding.key),
        "what": finding.what,
        "belief": finding.belief,
    }


def stamp(seconds: float) -> str:
    """A time in seconds since 1970, as ISO 8601 in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
