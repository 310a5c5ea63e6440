"""The comparison of a log of requests with a recording, as lines and as plain values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kvcanon.live.served import LAW, ServedAudit

_SHOWN = 10


def served_lines(served: ServedAudit) -> Iterator[str]:
    """What was promised and served, and each request of which they differ."""
    sums = served.sums
    yield ""
    yield f"{sums.requests} requests beside the stream"
    yield f"  tokens promised: {tiers_text(sums.promised)}; served: {tiers_text(sums.served)}"
    if served.unknown:
        yield f"  not compared: {served.unknown} requests before the first clear, or of many ranks"
    for line, mismatch in served.mismatches[:_SHOWN]:
        yield f"{LAW}: line {line}: {mismatch.kind}: {mismatch.words}"
    if len(served.mismatches) > _SHOWN:
        yield f"{LAW}: {len(served.mismatches) - _SHOWN} more"
    if served.mismatches:
        yield f"BROKEN: {LAW} {len(served.mismatches)} times"
    elif not sums.requests:
        yield "No request could be compared, so nothing was checked."
    else:
        yield "Every request was served as the stream promised."


def served_json(served: ServedAudit) -> dict[str, object]:
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


def tiers_text(tokens: Mapping[str, int]) -> str:
    """Tokens by tier, as text."""
    return ", ".join(f"{count} {tier}" for tier, count in sorted(tokens.items())) or "none"
