"""The report of a probe, as lines and as plain values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from attrs import asdict
from attrs.filters import exclude

from kvcanon.conformance.probe.coverage import missing_words
from kvcanon.conformance.probe.reduction import ShownFinding
from kvcanon.conformance.probe.session import ProbeSession
from kvcanon.conformance.probe.talk import EngineFacts, PageRange

FORMAT = "kvcanon-probe/1"
_SHOWN_TIES = 2
_SHOWN_REQUESTS = 12


def engine_line(facts: EngineFacts, page: PageRange) -> str:
    """What the server is, in one line."""
    said = [
        f"{facts.api} {facts.version}".strip(),
        f"model {facts.model}",
        _page_words(facts, page),
        f"pool of {facts.pool_tokens or 'unknown'} tokens",
        {None: "window unknown", 0: "no window"}.get(facts.window, f"window of {facts.window}"),
        {None: "host tier unknown", False: "no host tier", True: "host tier"}[facts.has_host],
    ]
    return ", ".join(said)


def report_lines(result: ProbeSession, sums: Mapping[str, Any] | None) -> Iterator[str]:
    """The report, after the line that names server and seed."""
    yield engine_line(result.player.facts, result.page)
    for each in result.coverage.played:
        cut = ", cut short" if each.cut_short else ""
        hits = f"{each.with_hits} with cached tokens"
        yield f"  {each.name}: {each.purpose}: {each.requests} requests, {hits}{cut}"
    if sums is not None:
        yield f"  beside the stream: {sums_words(sums)}"
    for number, shown in enumerate(result.shown, 1):
        yield ""
        yield from finding_lines(number, shown)
    yield ""
    for words in result.near_ties[:_SHOWN_TIES]:
        yield f"near-tie: {words}"
    if len(result.near_ties) > _SHOWN_TIES:
        yield f"near-tie: {len(result.near_ties) - _SHOWN_TIES} more"
    for words in result.not_shown:
        yield f"not shown: {words}"
    if result.cuts.counts:
        yield f"cut: {result.cuts.words}"
    yield verdict(result)


def finding_lines(number: int, shown: ShownFinding) -> Iterator[str]:
    """A finding: what is wrong, and the requests that show it."""
    finding = shown.finding
    law = f"{finding.law_id}, " if finding.law_id else ""
    yield f"Finding {number}: {law}{finding.fault.words}"
    yield f"  {finding.words}."
    if shown.repeated and shown.requests:
        yield f"  {len(shown.requests)} requests show it:"
    elif shown.requests:
        yield f"  It was seen once, with {len(shown.requests)} requests of its round:"
    if len(shown.requests) > _SHOWN_REQUESTS:
        yield f"    {len(shown.requests) - _SHOWN_REQUESTS} more, and then"
    for sent in shown.requests[-_SHOWN_REQUESTS:]:
        cached = "" if sent.reply.cached is None else f", {sent.reply.cached} cached"
        goes_on = sent.request.overlaps
        during = f", goes on during the next {goes_on}" if goes_on else ""
        yield (
            f"    {sent.request.name}: {len(sent.request.tokens)} tokens, "
            f"{sent.request.space.words}{cached}{during}"
        )
    if finding.law_id:
        yield f"  The law: kvcanon laws {finding.law_id}"


def verdict(result: ProbeSession) -> str:
    """The last line: the verdict, what was played of what was to be, and what is missing."""
    coverage, limits = result.coverage, result.limits
    rounds = f"{coverage.whole} of {coverage.due} rounds"
    took = f"{result.seconds:.0f} s, {result.hits} with hits"
    if result.laws:
        found = ", ".join(result.laws)
        return f"BROKEN: {found} ({rounds} whole, {result.requests} requests in {took})"
    if not (mends := coverage.mends):
        return f"HELD: nothing wrong was found ({rounds}, {result.requests} requests in {took})"
    missing = missing_words(coverage.missing)
    return (
        f"INCOMPLETE: nothing wrong was found in what was played: {rounds} whole, "
        f"{result.requests} of at most {limits.requests} requests in {took}; "
        + (f"missing: {missing}; " if missing else "")
        + "; ".join(mends)
    )


def report_json(result: ProbeSession, seed: int, sums: Mapping[str, Any] | None) -> dict[str, Any]:
    """The report as plain values."""
    facts = result.player.facts
    return {
        "format": FORMAT,
        "seed": seed,
        "server": {
            "api": facts.api,
            "version": facts.version,
            "model": facts.model,
            "page_size": result.page.known,
            "page_size_between": [result.page.least, result.page.most],
            "pool_tokens": facts.pool_tokens,
            "window": facts.window,
            "host_tier": facts.has_host,
        },
        "rounds": [asdict(each, filter=exclude("purpose")) for each in result.coverage.played],
        "findings": [
            {
                "law": each.finding.law_id or None,
                "kind": each.finding.fault.words,
                "round": each.finding.round,
                "words": each.finding.words,
                "repeated": each.repeated,
                "requests": [
                    {
                        "name": sent.request.name,
                        "tokens": list(sent.request.tokens),
                        "generate": sent.request.count,
                        "salt": sent.request.space.salt,
                        "extra_key": sent.request.space.extra_key,
                        "lora": sent.request.space.lora,
                        "leave_after": sent.request.abort_after,
                        "overlaps": sent.request.overlaps,
                        "cached": sent.reply.cached,
                        "cached_by_tier": sent.reply.tiers and dict(sent.reply.tiers),
                        "reply": list(sent.reply.tokens),
                    }
                    for sent in each.requests
                ],
            }
            for each in result.shown
        ],
        "beside_the_stream": sums and dict(sums),
        "near_ties": list(result.near_ties),
        "not_shown": list(result.not_shown),
        "cut": dict(result.cuts.counts),
        "requests": result.requests,
        "seconds": result.seconds,
        "verdict": result.verdict,
        "rounds_due": result.coverage.due,
        "missing": [asdict(each) for each in result.coverage.missing],
        "to_complete": result.coverage.mends,
        "broken": result.laws,
    }


def sums_words(sums: Mapping[str, Any]) -> str:
    """What was promised and served, in words."""
    promised, served = (
        ", ".join(f"{count} {tier}" for tier, count in sorted(sums[name].items())) or "none"
        for name in ("promised", "served")
    )
    return f"{sums['requests']} requests compared; tokens promised: {promised}; served: {served}"


def _page_words(facts: EngineFacts, page: PageRange) -> str:
    if facts.page_size:
        return f"pages of {facts.page_size}"
    if page.known:
        return f"pages of {page.known}, by its answers"
    return f"pages of {page.least} to {page.most or 'any number of'} tokens, by its answers"
