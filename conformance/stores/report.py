"""The report of a check of a store, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kvcanon import __version__
from kvcanon.conformance.stores.check import StoreFinding, StoreReport, StoreStanding, StoreVerdict
from kvcanon.conformance.stores.words import steps_in_words, terms_in_words
from kvcanon.spec.law import LawClass
from kvcanon.spec.stores.store_law import STORE_LAWS

STORE_FORMAT = "kvcanon-store-check/1"
_SIGNS = {
    StoreStanding.BROKEN: ("broken", "bold red"),
    StoreStanding.HELD: ("held", "green"),
    StoreStanding.NOT_EXERCISED: ("not exercised", "yellow"),
    StoreStanding.NOT_OFFERED: ("not offered", "dim"),
}


def store_report_text(report: StoreReport) -> Iterator[RenderableType]:
    """The parts of the report: the findings, the laws, and the verdict in the last line."""
    about = (
        f"seed {report.seed}, effort {report.effort}: {report.cases} cases, {report.calls} calls"
    )
    yield Text.assemble((f"kvcanon check-store {report.name}", "bold cyan"), f"  {about}")
    for number, finding in enumerate(report.findings, 1):
        yield ""
        yield from _finding_text(number, finding)
    yield ""
    yield _laws_table(report)
    if report.doubted:
        yield ""
        yield Text(doubts_line(report), "yellow")
    yield ""
    yield store_verdict_line(report)


def doubts_line(report: StoreReport) -> str:
    """What the machine was too late to tell, in one line."""
    laws = ", ".join(
        f"{law_id} ({count} {'case' if count == 1 else 'cases'})"
        for law_id, count in report.doubted.items()
    )
    return (
        f"Not counted, since this machine was too late to judge a deadline: {laws}. "
        "Run it again on a machine with less other work."
    )


def store_verdict_line(report: StoreReport) -> str:
    """The verdict in one line."""
    broken = [each.law for each in report.findings]
    names = ", ".join(law.law_id for law in broken)
    count = [*report.standings.values()].count
    held = f"{count(StoreStanding.HELD)} of {len(report.standings)} laws held"
    rest = [
        f"{count(each)} {each.value}"
        for each in (StoreStanding.NOT_EXERCISED, StoreStanding.NOT_OFFERED)
        if count(each)
    ]
    ending = f"{held}; {', '.join(rest)}" if rest else held
    if report.verdict is StoreVerdict.HOLDS:
        return f"{report.name}: no law is broken. {ending}."
    if report.verdict is StoreVerdict.DEPARTS:
        return f"{report.name} departs from the canon's policy in {names}. {ending}."
    if report.verdict is StoreVerdict.NOT_JUDGED:
        return f"{report.name}: too little was exercised to say that it holds. {ending}."
    kinds = [
        f"{sum(law.law_class is kind for law in broken)} {kind.value}"
        for kind in LawClass
        if any(law.law_class is kind for law in broken)
    ]
    laws = "1 law" if len(broken) == 1 else f"{len(broken)} laws"
    return f"{report.name} breaks {laws} ({', '.join(kinds)}): {names}. {ending}."


def _finding_text(number: int, finding: StoreFinding) -> Iterator[RenderableType]:
    law = finding.law
    sentence = " ".join(law.statement.partition("\n\n")[0].split())
    yield Text.assemble(
        (f"Failure {number}: {law.law_id} {law.name}", "bold red"), f" ({law.law_class.value})"
    )
    yield Padding(Text(sentence), (0, 0, 0, 2))
    yield Padding(Text(finding.words, "bold"), (0, 0, 0, 2))
    seen = f"{finding.origin}; {finding.times} {'case' if finding.times == 1 else 'cases'}"
    again = "" if finding.repeats else "; played again it did not show"
    yield Padding(Text(f"{terms_in_words(finding.case)} ({seen}{again})", "dim"), (0, 0, 0, 2))
    for line in steps_in_words(finding.case, finding.steps):
        yield f"    {line}"


def _laws_table(report: StoreReport) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for _ in range(3):
        table.add_column(no_wrap=True)
    table.add_column()
    for law_id, standing in report.standings.items():
        law = STORE_LAWS[law_id]
        word, style = _SIGNS[standing]
        if standing is StoreStanding.NOT_OFFERED:
            needs = ", ".join(sorted(each.value for each in law.needs))
            why = f"it takes a store that is or has: {needs}"
        elif standing is StoreStanding.NOT_EXERCISED:
            why = f"there was not {law.premise}"
        else:
            why = f"{report.met.get(law_id, 0):,} times: {law.premise}"
        table.add_row(law_id, law.law_class.value, Text(word, style), Text(why))
    return table


def store_report_json(report: StoreReport) -> dict[str, object]:
    """The report as values of JSON."""
    return {
        "format": STORE_FORMAT,
        "kvcanon": __version__,
        "store": report.name,
        "seed": report.seed,
        "effort": report.effort,
        "cases": report.cases,
        "calls": report.calls,
        "verdict": report.verdict.value,
        "laws": [
            {
                "id": law_id,
                "class": STORE_LAWS[law_id].law_class.value,
                "standing": standing.value,
                "times": report.met.get(law_id, 0),
            }
            for law_id, standing in report.standings.items()
        ],
        "doubted": dict(report.doubted),
        "findings": [
            {
                "law": each.law.law_id,
                "name": each.law.name,
                "words": each.words,
                "origin": each.origin,
                "cases": each.times,
                "repeats": each.repeats,
                "case": each.case.as_json(),
                "calls": list(steps_in_words(each.case, each.steps)),
            }
            for each in report.findings
        ],
    }
