"""The report as text, for a terminal or a pipe. Its last line is the verdict, and what was played.

A failed check begins with the failures, the shortest first, so that the first screen has the
verdict, what is wrong, and the calls that lead to it. What was played comes after them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kvcanon.conformance.cases.case import Case
from kvcanon.conformance.check.bare_factory import ignoring
from kvcanon.conformance.check.memory_growth import Growth
from kvcanon.conformance.check.result import (
    AFTER_SAME_CALL,
    CheckResult,
    CodeLine,
    Finding,
    Grounds,
    Standing,
    are_grouped,
)
from kvcanon.conformance.judge import sentence
from kvcanon.conformance.report.played import played, to_complete
from kvcanon.conformance.report.report import LEFT_OUT, CacheReport, CheckReport, CheckVerdict
from kvcanon.spec.law import LAWS

NOTED_BYTES = 20
"""From so many bytes for each operation on, growth of memory is noted."""
MEGABYTE = 1_000_000
MOST_NAMED = 6
"""Of so many laws each is named; of more the rest is counted."""


def text_report(report: CheckReport, scripts: Mapping[str, str]) -> Iterator[RenderableType]:
    """The parts of the report; `scripts` are the files of scripts by the number of their finding.

    A part that is a plain string is for copying, and must not be wrapped.
    """
    yield _title(report)
    if report.verdict is not CheckVerdict.HOLDS:
        is_short = report.verdict is CheckVerdict.INCOMPLETE
        yield last_line(report) if is_short else verdict(report)
        yield from judged_as(report)
        yield ""
    for cache in report.caches:
        for each in (*cache.failures, *cache.unkept):
            yield from _finding(each, report, scripts, unkept=each in cache.unkept)
    yield Padding(_stages(report.result), (0, 0, 1, 2))
    for cache in report.caches:
        yield Text(cache.name, "bold cyan")
        yield Padding(_facts(cache), (0, 0, 1, 2))
    for each in report.findings:
        if each.number not in scripts:
            yield Text(
                f"Script of failure {each.number}; --scripts DIR writes it to a file", "bold"
            )
            yield f"\n{each.script}"
    yield from judged_as(report)
    yield last_line(report)


def judged_as(report: CheckReport) -> Iterator[str]:
    """The features of a bare factory that are not judged, a line for each."""
    for cache in report.caches:
        if cache.result.ignores:
            yield ignoring(cache.name, cache.result.ignores)


def _title(report: CheckReport) -> Text:
    plan = report.result.plan
    against = f", against {plan.against}" if plan.against else ""
    names = " ".join(cache.name for cache in report.caches)
    how = f"  {plan.effort.name} effort, seed {plan.seed}{against}"
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
        if stage.too_slow:
            remarks.append(f"{stage.too_slow:,} left, too slow")
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
    if cache.result.tally.growth is not None:
        table.add_row("memory", Text(memory_of(cache.result.tally.growth)))
    known = [each for each in cache.laws if each.standing is Standing.KNOWN]
    known += [each for each in cache.laws if each.standing is Standing.HELD and each.remark]
    for each in known:
        table.add_row("known", Text(f"{each.law.law_id} {each.law.name}: {each.remark}"))
    for reason, ids in cache.not_exercised.items():
        table.add_row("not exercised", Text(f"{laws_in_short(ids, reason)}: {reason}"))
    return table


def laws_in_short(law_ids: Sequence[str], reason: str = "") -> str:
    """Some laws by their ids, the first few where there are many; `--json` has all of them."""
    if reason == LEFT_OUT:
        # A list of all laws that --only leaves out would be of no use.
        return f"{len(law_ids)} laws"
    shown = law_ids if len(law_ids) <= MOST_NAMED + 2 else law_ids[:MOST_NAMED]
    more = len(law_ids) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def memory_of(growth: Growth) -> str:
    """How memory grew in a lasting case; a little is the judge's, or the allocator's."""
    if growth.grown_bytes < NOTED_BYTES * growth.operations:
        return f"flat over {growth.operations:,} operations of a lasting case"
    each = growth.grown_bytes / growth.operations
    return (
        f"grew by {growth.grown_bytes / MEGABYTE:,.0f} MB over {growth.operations:,} operations of "
        f"a lasting case, {each:,.0f} bytes for each; no law limits it"
    )


def laws_counted(cache: CacheReport) -> str:
    """How many laws have each standing, in a line."""
    always = (Standing.HELD, Standing.BROKEN, Standing.NOT_EXERCISED)
    return ", ".join(
        f"{cache.count(standing)} {standing.value}"
        for standing in Standing
        if standing in always or cache.count(standing)
    )


def held_least(cache: CacheReport) -> str:
    """The held laws that were exercised least, and how often."""
    return ", ".join(f"{each.law.law_id} {times(each.times)}" for each in cache.least_exercised)


def too_little_exercised(report: CheckReport) -> str:
    """The essentials that were not exercised, for each cache; empty if all were exercised."""
    parts = [
        f"{cache.name}: {', '.join(missing)}" if len(report.caches) > 1 else ", ".join(missing)
        for cache in report.caches
        if (missing := cache.result.missing)
    ]
    return f"NOT EXERCISED: {'; '.join(parts)}" if parts else ""


def _profile(cache: CacheReport) -> Iterator[str]:
    if not cache.departures:
        yield "the canon's"
    for each in cache.departures:
        yield (
            f"departs from the canon: {each.field} is {each.value}, not {each.canon}: "
            f"{each.meaning}"
        )


def _finding(
    finding: Finding, report: CheckReport, scripts: Mapping[str, str], *, unkept: bool
) -> Iterator[RenderableType]:
    of_cache = f" of {finding.cache}" if len(report.caches) > 1 else ""
    law_class = LAWS[finding.name].law_class if finding.grounds is Grounds.LAW else ""
    heading = f"{finding.number}{of_cache}: {finding.headline}{law_class and f' ({law_class})'}"
    if unkept:
        yield Text(f"SHOULD, not kept, {heading}", "bold yellow")
    else:
        yield Text(f"Failure {heading}", "bold red")
    if finding.grounds is Grounds.LAW:
        yield Padding(Text(sentence(LAWS[finding.name]), "bold"), (0, 0, 0, 2))
    told = [said(finding), *also_broken(finding)]
    yield Padding(Text("\n".join(told)), (0, 0, 1, 2))
    if finding.calls:
        yield Padding(calls(finding.calls, finding.case, finding.operation), (0, 0, 1, 2))
    script = scripts.get(finding.number)
    if script is not None:
        yield f"  Play it again:  python {script}"
    else:
        yield "  Play it again:  by the script below; --scripts DIR writes it to a file"
    if finding.grounds is Grounds.LAW:
        law = LAWS[finding.name]
        yield f"  The law:        kvcanon laws {law.law_id}"
        yield f"  Its page:       {law.address}"
    yield ""
    for words in declarable(finding):
        yield Padding(Text(words.lstrip()), (0, 0, 0, 2 + len(words) - len(words.lstrip())))
    yield Padding(Text("\n".join(seen(finding))), (0, 0, 1, 2))
    yield Padding(Text(finding.words.rstrip()), (0, 0, 1, 2))
    yield from _folded(finding, scripts)


def said(finding: Finding) -> str:
    """What is wrong in a finding; below the sentence of a law it is one case of it."""
    return f"Here: {finding.text}" if finding.grounds is Grounds.LAW else finding.text


def _folded(finding: Finding, scripts: Mapping[str, str]) -> Iterator[RenderableType]:
    """The findings with most likely the same cause: the sentences that are new, and the scripts."""
    shown = set(finding.broken)
    for each in finding.folded:
        evidence = each.evidence or {each.headline: each.text}
        lines = [f"{what}: {text}" for what, text in evidence.items() if what not in shown]
        shown |= evidence.keys()
        yield Text(f"  {each.number}: {each.headline}, {each.why_folded}", "bold")
        yield Padding(Text("\n".join([*lines, *seen(each)])), (0, 0, 0, 4))
        script = scripts.get(each.number)
        yield f"    Play it again:  python {script}\n" if script is not None else ""


def also_broken(finding: Finding) -> Iterator[str]:
    """What the same fault most likely breaks too, a line for each reason."""
    why: dict[str, list[str]] = {}
    shown = {finding.name}
    for each in finding.every:
        broken = each.broken or (each.headline,)
        new = [what for what in broken if what not in shown]
        shown.update(new)
        if new:
            why.setdefault(each.why_folded or AFTER_SAME_CALL, []).extend(new)
    for reason, broken_too in why.items():
        yield f"also broken: {', '.join(broken_too)} ({reason})"


def declarable(finding: Finding) -> Iterator[str]:
    """What an author can declare about it, one sentence in each line."""
    if finding.permitted_by:
        yield "If the cache does one of these on purpose, declare it:"
        for declaration, words in finding.permitted_by.items():
            yield f"  {declaration}: {words}"
    if finding.left_out_by:
        yield f"If the cache has nothing of the kind, declare {' or '.join(finding.left_out_by)}."


def seen(finding: Finding) -> Iterator[str]:
    """Where and how often it was found, one sentence in each line."""
    yield f"First found by the {finding.origin}; {times(finding.times)} in all."
    if finding.operation:
        yield f"Shown by the shortest case at operation {finding.operation}, {_where(finding)}."
    if finding.black_box:
        yield "Answers and events alone show it."
    if not finding.reduced:
        yield "A shorter case may show it: it was not reduced to its end."
    if finding.against is not None and finding.grounds is Grounds.AGREEMENT:
        yield f"The cache had to agree with {finding.against}."
    if not finding.shown_again:
        yield "A replay for this report did not show it: the cache may not be deterministic."


def times(count: int) -> str:
    """A number of times, in words."""
    return "once" if count == 1 else f"{count:,} times"


def _where(finding: Finding) -> str:
    at, count = finding.action, len(finding.case.actions)
    if at >= count:
        return "in the drain at the end"
    return f"in action {at + 1} of {count}, {action_name(finding.case, at)}"


def action_name(case: Case, at: int) -> str:
    """The name of the action at an index of a case."""
    actions = case.actions
    return actions[at].name if at < len(actions) else "the drain"


def calls(lines: Sequence[CodeLine], case: Case, last_number: int | None) -> Table:
    """The calls of a case, one in each line, under the names of its actions if these made several.

    The operation `last_number`, at which the fault shows, is highlighted.
    """
    # A report without findings does not wait for this import.
    from kvcanon.conformance.report.call_code import shortened  # noqa: PLC0415

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(justify="right", style="dim")
    table.add_column()
    table.add_column()
    last, grouped = None, are_grouped(lines)
    for line in lines:
        if grouped and line.action != last:
            last = line.action
            table.add_row("", Text(action_name(case, last), "italic"), "")
        for definition in line.before:
            table.add_row("", Text(shortened(definition)), "")
        code = shortened(line.code.removeprefix("cache.").replace("= cache.", "= "))
        style = "bold red" if line.number and line.number == last_number else ""
        answer = "" if line.number is None and line.answer == "done" else line.answer
        table.add_row(str(line.number or ""), Text(code, style), Text(answer, style))
    return table


def last_line(report: CheckReport) -> Text:
    """The last line of the report: the verdict, and how much was played."""
    first = verdict(report)
    end = "" if first.plain.endswith(".") else "."
    return Text.assemble(first, f"{end} {played(report.result)}", no_wrap=True)


def verdict(report: CheckReport) -> Text:
    """The verdict in one line."""
    match report.verdict:
        case CheckVerdict.HOLDS:
            return Text.assemble((f"{holds(report)}. ", "bold green"), laws_exercised(report))
        case CheckVerdict.INCOMPLETE:
            mends = to_complete(report.result)
            short = "; ".join(["INCOMPLETE: no law is broken in what was played", *mends])
            parts = [short, *filter(None, [too_little_exercised(report)])]
            return Text(". ".join(parts), "bold yellow")
        case CheckVerdict.NOT_EXERCISED:
            return Text(too_little_exercised(report), "bold red")
        case CheckVerdict.NOT_JUDGED:
            return Text("Nothing was judged.", "bold red")
        case CheckVerdict.DEPARTS:
            return Text(departs(report), "bold yellow")
        case CheckVerdict.BROKEN:
            classes = ", ".join(report.classes_broken)
            broken = (
                f"BROKEN{f' ({classes})' if classes else ''}: {', '.join(broken_names(report))}"
            )
            parts = [broken, *filter(None, [too_little_exercised(report)])]
            return Text(". ".join(parts), "bold red")


def departs(report: CheckReport) -> str:
    """The verdict of a check in which only laws of policy are broken."""
    found = [each.permitted_by for each in report.findings if each.grounds is Grounds.LAW]
    declared = " and ".join(dict.fromkeys(next(iter(each)) for each in found if each))
    mend = f"If the cache chooses so, declare {declared}" if declared else "No field declares it"
    return f"DEPARTS (policy): {', '.join(broken_names(report))}. {mend}"


def holds(report: CheckReport) -> str:
    """The verdict of a check without failures."""
    if unkept := _standing_so(report, Standing.NOT_KEPT):
        return f"No MUST law is broken; SHOULD laws not kept: {', '.join(unkept)}"
    known = any(cache.count(Standing.KNOWN) for cache in report.caches)
    return "No law is broken except the known ones" if known else "No law is broken"


def laws_exercised(report: CheckReport) -> str:
    """How many laws were exercised, for each cache if the numbers differ."""
    counts = {f"{cache.exercised} of {cache.checked}": None for cache in report.caches}
    return f"{' and '.join(counts)} laws were exercised."


def broken_names(report: CheckReport) -> list[str]:
    """All broken laws, and then the findings of no law."""
    laws = _standing_so(report, Standing.BROKEN)
    failures = [each for cache in report.caches for each in cache.failures]
    findings = [each for first in failures for each in first.every]
    others = [each.headline for each in findings if each.grounds is not Grounds.LAW]
    return list(dict.fromkeys((*laws, *others)))


def _standing_so(report: CheckReport, standing: Standing) -> list[str]:
    """The ids of the laws that have this standing with some cache."""
    laws = (each for cache in report.caches for each in cache.laws)
    return list(dict.fromkeys(each.law.law_id for each in laws if each.standing is standing))
