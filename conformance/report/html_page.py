"""The report as one HTML page, which needs no font and no other file.

It needs no script but for runs that another room draws into it. Words say everything that colours
say: the page is also read on paper and aloud.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from attrs import frozen

from kvcanon import __version__
from kvcanon.conformance.check.result import CodeLine, Finding, Grounds, Standing, are_grouped
from kvcanon.conformance.judge import sentence
from kvcanon.conformance.report.call_code import shortened
from kvcanon.conformance.report.markup import Markup, joined, tag
from kvcanon.conformance.report.played import incomplete, played
from kvcanon.conformance.report.report import CacheReport, CheckReport, CheckVerdict, Judged
from kvcanon.conformance.report.text import (
    action_name,
    also_broken,
    broken_names,
    declarable,
    held_least,
    holds,
    judged_as,
    laws_counted,
    laws_in_short,
    said,
    seen,
    too_little_exercised,
)
from kvcanon.spec.law import LAWS, Law

STYLE = Path(__file__).with_name("page.css")


@frozen
class Drawings:
    """The runs of findings, drawn by another room."""

    of: Callable[[Finding], Markup]
    """The element of a finding; empty if it has none."""
    style: Markup
    script: Markup


NO_DRAWINGS = Drawings(lambda _: Markup(), Markup(), Markup())


def check_html(report: CheckReport, drawings: Drawings = NO_DRAWINGS) -> str:
    """The report of a check, with the runs of its findings where they are drawn."""
    title = f"kvcanon check: {', '.join(cache.name for cache in report.caches)}"
    head = tag(
        "head",
        Markup('<meta charset="utf-8">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        tag("title", title),
        tag("style", Markup(STYLE.read_text(encoding="utf-8")), drawings.style),
    )
    body = tag(
        "body",
        tag("header", *_opening(report)),
        tag("main", *_breaks(report, drawings), *_checked(report, drawings)),
        tag("footer", f"Written by kvcanon {__version__}. The same seed gives the same cases."),
        drawings.script,
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def _opening(report: CheckReport) -> tuple[Markup, ...]:
    plan = report.result.plan
    against = f", against {plan.against}" if plan.against else ""
    return (
        tag(
            "p",
            f"kvcanon check, {plan.effort.name} effort, seed {plan.seed}{against}",
            class_="kicker",
        ),
        _headline(report),
        *([tag("p", too_little)] if (too_little := too_little_exercised(report)) else []),
        *(
            [tag("p", f"{incomplete(report.result)}.")]
            if report.verdict is CheckVerdict.INCOMPLETE
            else []
        ),
        *(tag("p", line) for line in judged_as(report)),
        tag("p", played(report.result), class_="soft"),
    )


def _headline(report: CheckReport) -> Markup:
    """The verdict; of a broken law its id and its sentence, with the others that are broken."""
    found = [each for cache in report.caches for each in cache.failures]
    first = next((each for each in found if each.grounds is Grounds.LAW), None)
    if first is None:
        words = f"A fault was found: {found[0].headline}" if found else _verdict(report)
        return tag("h1", _standing(report.verdict.value, words))
    law = LAWS[first.name]
    broken = f"{law.law_id} is broken" + DEPARTED * (report.verdict is CheckVerdict.DEPARTS)
    others = [each for each in broken_names(report) if each != law.law_id]
    return joined(
        tag("h1", _standing(report.verdict.value, f"{broken}."), f" {sentence(law)}"),
        *([tag("p", f"Also broken: {laws_in_short(others)}.")] if others else []),
    )


DEPARTED = ", a choice that is not declared"


def _verdict(report: CheckReport) -> str:
    match report.verdict:
        case CheckVerdict.HOLDS:
            return holds(report)
        case CheckVerdict.INCOMPLETE:
            return "Incomplete: no law is broken in what was played"
        case CheckVerdict.NOT_EXERCISED:
            return "Too little was exercised"
        case CheckVerdict.NOT_JUDGED:
            return "Nothing was judged"
        case CheckVerdict.DEPARTS | CheckVerdict.BROKEN:
            return f"Broken: {', '.join(broken_names(report))}"


def _summary(report: CheckReport) -> Markup:
    standings = (standing.value.capitalize() for standing in Standing)
    headings = ("Cache", *standings, "Failures", "Operations")
    rows = [
        tag(
            "tr",
            tag("th", tag("a", cache.name, href=f"#cache-{number}"), scope="row"),
            *(_number(cache.count(standing)) for standing in Standing),
            _number(len(cache.failures)),
            _number(cache.result.tally.steps),
        )
        for number, cache in enumerate(report.caches, 1)
    ]
    return _table("Laws of each cache, by standing", headings, rows)


def _stages(report: CheckReport) -> Markup:
    headings = ("Stage", "Cases", "Not offered", "Operations", "Seconds", "Cut short")
    rows = [
        tag(
            "tr",
            tag("th", stage.name, scope="row"),
            _number(stage.cases),
            _number(stage.unoffered),
            _number(stage.steps),
            tag("td", f"{stage.seconds:,.1f}", class_="number"),
            tag("td", stage.cut_short or "no", class_="remark"),
        )
        for stage in report.result.stages
    ]
    return _table("Stages of the check", headings, rows, numbers=(1, 2, 3, 4))


def _breaks(report: CheckReport, drawings: Drawings) -> Iterator[Markup]:
    """What breaks, cache by cache: it comes before all that was only counted."""
    for cache in report.caches:
        if cache.failures:
            yield tag(
                "section",
                tag("h2", f"What breaks in {cache.name}"),
                *(_finding(each, drawings) for each in cache.failures),
                class_="breaks",
            )


def _checked(report: CheckReport, drawings: Drawings) -> Iterator[Markup]:
    """What was checked, and what is known of each cache."""
    yield tag("section", tag("h2", "What was checked"), _summary(report), _stages(report))
    for number, cache in enumerate(report.caches, 1):
        yield tag(
            "section",
            tag("h2", cache.name, id=f"cache-{number}"),
            _facts(cache),
            *([tag("h2", "SHOULD, not kept")] if cache.unkept else []),
            *(_finding(each, drawings) for each in cache.unkept),
            _not_exercised(cache),
            _laws(cache),
        )


def _not_exercised(cache: CacheReport) -> Markup:
    """The laws that were not exercised, folded: a reason may concern many."""
    rows = [
        joined(tag("dt", reason), tag("dd", ", ".join(ids)))
        for reason, ids in cache.not_exercised.items()
    ]
    count = cache.count(Standing.NOT_EXERCISED)
    summary = f"{count} {'law' if count == 1 else 'laws'} not exercised"
    return _folded(summary, tag("dl", *rows, class_="reasons")) if rows else joined()


def _facts(cache: CacheReport) -> Markup:
    departures = [
        tag("div", tag("code", f"{each.field} = {each.value}"), f": {each.meaning}.")
        for each in cache.departures
    ]
    rows = [
        ("Laws", joined(laws_counted(cache))),
        ("Profile", joined(*departures) if departures else joined("the canon's")),
    ]
    if cache.offered:
        rows.append(("Offers", joined("; ".join(cache.offered))))
    if cache.result.lacks:
        rows.append(("Lacks", joined(", ".join(cache.result.lacks))))
    if cache.least_exercised:
        rows.append(("Held least", joined(held_least(cache))))
    return tag("dl", *(joined(tag("dt", name), tag("dd", value)) for name, value in rows))


def _finding(finding: Finding, drawings: Drawings) -> Markup:
    law = LAWS[finding.name] if finding.grounds is Grounds.LAW else None
    name = _name_of(finding)
    return tag(
        "article",
        tag("h3", finding.headline),
        tag("p", said(finding), class_="said"),
        _folded(_lead(len(finding.calls)), _calls(finding), open_=True)
        if finding.calls
        else joined(),
        drawings.of(finding),
        _of_law(law) if law else joined(),
        *(tag("p", words) for words in also_broken(finding)),
        tag("p", " ".join(seen(finding)), class_="soft"),
        *(tag("p", words) for words in declarable(finding)),
        _folded(
            "The whole explanation", _pre(finding.words.rstrip(), f"explanation of {name}", "words")
        ),
        _folded("A script that shows it again", _pre(finding.script, f"script of {name}", "code")),
        *(_same_cause(each, drawings) for each in finding.folded),
        class_="failure",
    )


def _lead(calls: int) -> str:
    """What the list of calls is called."""
    return "The call that leads to it" if calls == 1 else f"The {calls} calls that lead to it"


def _of_law(law: Law) -> Markup:
    """A law in a sentence, with its class and its page."""
    return tag(
        "p",
        sentence(law),
        f" Its class: {law.law_class}. ",
        tag("a", "Its page.", href=law.address),
        class_="soft",
    )


def _name_of(finding: Finding) -> str:
    """A name that no other finding of the page has."""
    return f"{finding.headline}, {finding.cache}"


def _same_cause(finding: Finding, drawings: Drawings) -> Markup:
    """A finding that is folded into another one."""
    summary = f"{finding.headline}, {finding.why_folded}"
    return _folded(summary, _finding(finding, drawings))


def _calls(finding: Finding) -> Markup:
    rows: list[Markup] = []
    last, grouped = None, are_grouped(finding.calls)
    for line in finding.calls:
        if grouped and line.action != last:
            last = line.action
            name = action_name(finding.case, last)
            rows.append(tag("tr", tag("th", name, colspan="3", scope="colgroup")))
        rows += [_row("", shortened(definition), "") for definition in line.before]
        rows.append(_call(line, is_last=line.number == finding.operation))
    return _scrolling(
        f"calls of {_name_of(finding)}", tag("table", tag("tbody", *rows), class_="calls")
    )


def _call(line: CodeLine, *, is_last: bool) -> Markup:
    answer = "" if line.number is None and line.answer == "done" else line.answer
    return _row(
        str(line.number or ""), shortened(line.code), answer, class_="last" if is_last else ""
    )


def _row(number: str, code: str, answer: str, class_: str = "") -> Markup:
    return tag(
        "tr",
        tag("td", number, class_="number soft"),
        tag("td", code, class_="code"),
        tag("td", answer),
        class_=class_,
    )


def _laws(cache: CacheReport) -> Markup:
    stages = tuple(cache.result.tallies)
    headings = (
        "Law",
        "Name",
        "Class",
        "Standing",
        "Exercised",
        *map(str.capitalize, stages),
        "Remark",
    )
    rows = [_law(judged) for judged in cache.laws]
    numbers = tuple(range(4, 5 + len(stages)))
    table = _table(f"Laws of {cache.name}", headings, rows, numbers)
    return _folded(f"All {len(cache.laws)} laws", table)


def _law(judged: Judged) -> Markup:
    return tag(
        "tr",
        tag("th", tag("a", judged.law.law_id, href=judged.law.address), scope="row"),
        tag("td", judged.law.name),
        tag("td", judged.law.law_class.value),
        tag("td", _standing(judged.standing.value, judged.standing.value)),
        _number(judged.times),
        *(_number(times) for times in judged.stages.values()),
        tag("td", judged.remark, class_="remark"),
    )


def _standing(standing: str, words: str) -> Markup:
    return tag("span", words, class_=f"standing {standing.replace(' ', '-')}")


def _number(number: int) -> Markup:
    return tag("td", f"{number:,}", class_="number")


def _table(
    label: str, headings: tuple[str, ...], rows: list[Markup], numbers: tuple[int, ...] = ()
) -> Markup:
    numbers = numbers or tuple(range(1, len(headings)))
    head = [
        tag("th", heading, scope="col", class_="number" if at in numbers else "")
        for at, heading in enumerate(headings)
    ]
    table = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *rows))
    return _scrolling(label, table)


def _scrolling(label: str, table: Markup) -> Markup:
    """A scrolling box that the keyboard can reach, for content that may be wider than a phone."""
    return tag("div", table, class_="scroll", role="region", aria_label=label, tabindex="0")


def _pre(text: str, label: str, class_: str) -> Markup:
    return tag("pre", text, class_=class_, role="region", aria_label=label, tabindex="0")


def _folded(summary: str, content: Markup, *, open_: bool = False) -> Markup:
    attributes = {"open": "open"} if open_ else {}
    return tag("details", tag("summary", summary), content, **attributes)
