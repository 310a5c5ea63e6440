"""The report as text, for a terminal or a pipe.

What readers get wrong: the last line is the verdict, and the exit code says the same. All that
stands above it is for those who want to know why.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kvcanon.conformance.cases.case import Action
from kvcanon.conformance.report.call_code import CodeLine
from kvcanon.conformance.report.report import (
    CacheReport,
    CheckReport,
    CheckVerdict,
    ReplayedFailure,
)
from kvcanon.conformance.report.script import headline
from kvcanon.conformance.search.finding import Grounds
from kvcanon.conformance.search.result import CheckResult, Standing


def text_report(report: CheckReport, scripts: Mapping[int, str]) -> Iterator[RenderableType]:
    """The parts of the report; `scripts` are files by the number of their failure, if written.

    A part that is a plain string is to be copied, and must not be wrapped.
    """
    yield _title(report)
    if report.verdict is not CheckVerdict.HOLDS:
        yield _verdict(report)
    yield Padding(_stages(report.result), (0, 0, 1, 2))
    number = 0
    unwritten: list[tuple[int, ReplayedFailure]] = []
    for cache in report.caches:
        yield Text(cache.name, "bold cyan")
        yield Padding(_facts(cache), (0, 0, 1, 2))
        for retold in (*cache.failures, *cache.unkept):
            number += 1
            unkept = retold in cache.unkept
            yield from _failure(number, retold, scripts.get(number), unkept=unkept)
            if number not in scripts:
                unwritten.append((number, retold))
    for each, retold in unwritten:
        yield Text(f"Script of failure {each}; --scripts DIR writes it to a file", "bold")
        yield f"\n{retold.script}"
    yield _verdict(report)


def _title(report: CheckReport) -> Text:
    result = report.result
    against = f", against {result.against}" if result.against else ""
    names = " ".join(cache.name for cache in report.caches)
    how = f"  {result.effort} effort, seed {result.seed}{against}"
    return Text.assemble((f"check {names}", "bold cyan"), how)


def _stages(result: CheckResult) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("stage", no_wrap=True)
    for heading in ("cases", "steps", "seconds"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    for stage in result.stages:
        remarks = [f"cut short: {stage.cut_short}"] if stage.cut_short else []
        if stage.unoffered:
            remarks.append(f"{stage.unoffered:,} not offered")
        counts = (f"{stage.cases:,}", f"{stage.steps:,}", f"{stage.seconds:.1f}")
        table.add_row(stage.name, *counts, Text("; ".join(remarks), "yellow"))
    return table


def _facts(cache: CacheReport) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    table.add_row("profile", Text("\n".join(_profile(cache))))
    if cache.offered:
        table.add_row("offers", Text("; ".join(cache.offered)))
    if cache.result.lacks:
        table.add_row("lacks", Text(", ".join(cache.result.lacks)))
    table.add_row("laws", Text(laws_counted(cache)))
    if cache.least_exercised:
        table.add_row("held least", Text(held_least(cache)))
    known = [each for each in cache.laws if each.standing is Standing.KNOWN]
    for each in known:
        table.add_row("known", Text(f"{each.law.law_id} {each.law.name}: {each.remark}"))
    for told in cache.not_exercised:
        table.add_row("not exercised", Text(told))
    return table


def laws_counted(cache: CacheReport) -> str:
    """What came of the laws, in a line."""
    always = (Standing.HELD, Standing.BROKEN, Standing.NOT_EXERCISED)
    return ", ".join(
        f"{cache.count(standing)} {standing.value}"
        for standing in Standing
        if standing in always or cache.count(standing)
    )


def held_least(cache: CacheReport) -> str:
    """The laws that held in the fewest situations, and in how many."""
    return ", ".join(f"{each.law.law_id} {times(each.times)}" for each in cache.least_exercised)


def came_up_too_little(report: CheckReport) -> str:
    """What did not come up that has to, of which cache if there are several; empty if all did."""
    told = [
        f"{cache.name}: {', '.join(missing)}" if len(report.caches) > 1 else ", ".join(missing)
        for cache in report.caches
        if (missing := cache.result.missing)
    ]
    return f"NOT EXERCISED: {'; '.join(told)}" if told else ""


def _profile(cache: CacheReport) -> Iterator[str]:
    if not cache.departures:
        yield "the canon's"
    for each in cache.departures:
        yield (
            f"departs from the canon: {each.field} is {each.value}, not {each.canon}: "
            f"{each.meaning}"
        )


def _failure(
    number: int, retold: ReplayedFailure, script: str | None, *, unkept: bool
) -> Iterator[RenderableType]:
    finding = retold.failure.finding
    heading = f"{number}: {headline(finding)}"
    if unkept:
        yield Text(f"SHOULD, not kept, {heading}", "bold yellow")
    else:
        yield Text(f"Failure {heading}", "bold red")
    yield Padding(Text(finding.words.rstrip()), (1, 0, 1, 2))
    yield Padding(Text("\n".join(seen(retold))), (0, 0, 1, 2))
    if retold.lines:
        actions = retold.failure.case.actions
        yield Padding(calls(retold.lines, actions, retold.last_number), (0, 0, 1, 2))
    if script is not None:
        yield f"  Script: {script}\n"


def seen(retold: ReplayedFailure) -> Iterator[str]:
    """Where and how often a failure was seen, a sentence a line."""
    failure, finding = retold.failure, retold.failure.finding
    yield f"First seen by the {failure.origin}; {times(failure.times)} in all."
    if finding.operation:
        yield f"In the shortest case it shows at operation {finding.operation}, {_where(retold)}."
    others = [law_id for law_id in finding.broken if law_id != finding.name]
    if others:
        yield f"Broken at the same operation: {', '.join(others)}."
    if failure.black_box:
        yield "Answers and events are enough to see it."
    if failure.against is not None and finding.grounds is Grounds.AGREEMENT:
        yield f"It was to agree with {failure.against}."
    if not retold.again:
        yield "Played once more for this report, the case did not show it: is there chance in it?"


def times(count: int) -> str:
    """How often, in words."""
    return "once" if count == 1 else f"{count:,} times"


def _where(retold: ReplayedFailure) -> str:
    count = len(retold.failure.case.actions)
    at = retold.failure.finding.action
    if at >= count:
        return "in the drain at the end"
    return f"in action {at + 1} of {count}, {action_name(retold, at)}"


def action_name(retold: ReplayedFailure, at: int) -> str:
    """What an action of the failure's case is called."""
    return name_of(retold.failure.case.actions, at)


def name_of(actions: Sequence[Action], at: int) -> str:
    """What the action at some place of a case is called."""
    return actions[at].name if at < len(actions) else "the drain"


def calls(lines: Sequence[CodeLine], actions: Sequence[Action], last_number: int | None) -> Table:
    """The calls of a case, one a line, under the names of its actions; one of them may be last."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(justify="right", style="dim")
    table.add_column()
    table.add_column()
    last = None
    for line in lines:
        if line.action != last:
            last = line.action
            table.add_row("", Text(name_of(actions, last), "italic"), "")
        for definition in line.before:
            table.add_row("", Text(definition), "")
        code = line.code.removeprefix("cache.").replace("= cache.", "= ")
        style = "bold red" if line.number and line.number == last_number else ""
        answer = "" if line.number is None and line.answer == "done" else line.answer
        table.add_row(str(line.number or ""), Text(code, style), Text(answer, style))
    return table


def _verdict(report: CheckReport) -> Text:
    match report.verdict:
        case CheckVerdict.HOLDS:
            return Text.assemble((f"{holds(report)}. ", "bold green"), laws_exercised(report))
        case CheckVerdict.NOT_EXERCISED:
            return Text(came_up_too_little(report), "bold red")
        case CheckVerdict.NOT_JUDGED:
            return Text("Nothing was judged.", "bold red")
        case CheckVerdict.BROKEN:
            broken = f"BROKEN: {', '.join(_names(report))}"
            told = [broken, *filter(None, [came_up_too_little(report)])]
            return Text(". ".join(told), "bold red")


def holds(report: CheckReport) -> str:
    """What to say of a check that found nothing new."""
    if unkept := _standing_so(report, Standing.NOT_KEPT):
        return f"No law is broken but what only SHOULD be kept: {', '.join(unkept)}"
    known = any(cache.count(Standing.KNOWN) for cache in report.caches)
    return "No law is broken but what is known" if known else "No law is broken"


def laws_exercised(report: CheckReport) -> str:
    """How many laws were exercised, of each cache if they differ."""
    counts = {f"{cache.exercised} of {cache.asked}": None for cache in report.caches}
    return f"{' and '.join(counts)} laws were exercised."


def _names(report: CheckReport) -> list[str]:
    """The laws that are broken, all of them, and what was found besides laws."""
    laws = _standing_so(report, Standing.BROKEN)
    findings = [each.failure.finding for cache in report.caches for each in cache.failures]
    others = [headline(each) for each in findings if each.grounds is not Grounds.LAW]
    return list(dict.fromkeys((*laws, *others)))


def _standing_so(report: CheckReport, standing: Standing) -> list[str]:
    """The ids of the laws that stand so with some cache."""
    laws = (each for cache in report.caches for each in cache.laws)
    return list(dict.fromkeys(each.law.law_id for each in laws if each.standing is standing))
