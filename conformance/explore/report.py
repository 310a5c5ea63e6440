"""Reports of explorations: text, JSON and a page of the docs.

A scope that was not exhausted proves no more than a random walk of the same length. So every report
first says whether states are left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kvcanon.conformance.check.result import Finding
from kvcanon.conformance.explore.exploration import Exploration
from kvcanon.conformance.report.text import calls
from kvcanon.spec.law import LAWS


def text_of(found: Exploration, *, premises: bool = False) -> Iterator[RenderableType]:
    """One exploration: the states visited, the laws checked, the time, and what is left."""
    yield Text.assemble((f"explore {found.cache}", "bold cyan"), f"  {found.scope.name}")
    yield Padding(_facts(found), (0, 0, 1, 2))
    if premises:
        yield Padding(_premises(found), (0, 0, 1, 2))


def finding_text(finding: Finding, script: str | None) -> Iterator[RenderableType]:
    """A finding: in words, call by call, and as a script unless that was written to a file."""
    actions = len(finding.case.actions)
    yield Text(f"{finding.headline}, after {actions} actions, and no fewer", "bold red")
    yield Padding(Text(finding.words.rstrip()), (1, 0, 1, 2))
    yield Padding(calls(finding.calls, finding.case, finding.operation), (0, 0, 1, 2))
    if not finding.shown_again:
        yield "Played once more for this report, the path did not show it: is there chance in it?"
    yield f"  Script: {script}\n" if script is not None else f"\n{finding.script}"


def verdict_of(explorations: Sequence[Exploration]) -> Text:
    """The last line: the verdict on all explorations."""
    broken = [each.scope.name for each in explorations if each.finding is not None]
    left = [each.scope.name for each in explorations if each.left and each.finding is None]
    vacuous = [each.scope.name for each in explorations if lacks_evidence(each)]
    states = sum(each.states for each in explorations)
    if broken:
        return Text(f"BROKEN in {', '.join(broken)}", "bold red")
    if vacuous:
        return Text(f"NOT EXERCISED: laws that have to be, in {', '.join(vacuous)}.", "bold red")
    if left:
        return Text(f"Nothing is broken so far; {', '.join(left)} not exhausted.", "bold yellow")
    return Text.assemble(
        ("No law is broken in any state, nor in any step. ", "bold green"),
        f"{states:,} states were visited, and none is left.",
    )


def lacks_evidence(found: Exploration) -> bool:
    """Whether a scope was exhausted without exercising a law that it has to exercise."""
    return found.exhausted and bool(found.missed)


def _facts(found: Exploration) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    table.add_row("scope", found.scope.words)
    left = f"; {found.left:,} of them were not gone on from" if found.left else ", and none is left"
    table.add_row("states", f"{found.states:,} that differ by more than names{left}")
    table.add_row("steps", f"{found.edges:,} moves, which are {found.steps:,} operations")
    table.add_row("depth", f"{len(found.levels) - 1}: {', '.join(f'{n:,}' for n in found.levels)}")
    table.add_row("laws", _laws(found))
    table.add_row("time", _time(found))
    return table


def _laws(found: Exploration) -> str:
    exercised = len(found.law_ids) - len(found.not_exercised)
    beyond = len(found.not_exercised) - len(found.missed)
    parts = [f"{exercised} of {len(found.law_ids)} exercised"]
    if beyond:
        parts.append(f"{beyond} beyond the scope")
    if found.missed:
        parts.append(f"NOT EXERCISED: {', '.join(found.missed)}")
    return "; ".join(parts)


def _time(found: Exploration) -> str:
    processes = "1 process" if found.jobs == 1 else f"{found.jobs} processes"
    seconds, cpu = max(found.seconds, 1e-9), max(found.cpu_seconds, 1e-9)
    return (
        f"{found.seconds:,.1f} s by {processes}: {found.states / seconds:,.0f} states/s and "
        f"{found.edges / seconds:,.0f} moves/s; {found.cpu_seconds:,.1f} s of processors: "
        f"{found.states / cpu:,.0f} states/s and {found.edges / cpu:,.0f} moves/s each"
    )


def _premises(found: Exploration) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("law", "its situation"):
        table.add_column(heading)
    table.add_column("exercised", justify="right")
    for law_id in found.law_ids:
        if times := found.laws_exercised.get(law_id):
            came = f"{times:,}"
        else:
            came = "NOT EXERCISED" if law_id in found.missed else "beyond the scope"
        table.add_row(f"{law_id} {LAWS[law_id].name}", LAWS[law_id].premise.words, came)
    return table


def json_of(found: Exploration) -> Mapping[str, Any]:
    """One exploration as a JSON object."""
    return {
        "cache": found.cache,
        "scope": found.scope.name,
        "states": found.states,
        "moves": found.edges,
        "operations": found.steps,
        "levels": list(found.levels),
        "left": found.left,
        "laws": list(found.law_ids),
        "laws_exercised": dict(found.laws_exercised),
        "not_exercised": list(found.not_exercised),
        "missed": list(found.missed),
        "seconds": found.seconds,
        "cpu_seconds": found.cpu_seconds,
        "jobs": found.jobs,
        "broken": None if found.finding is None else _finding(found.finding),
    }


def _finding(finding: Finding) -> Mapping[str, Any]:
    return {
        "name": finding.name,
        "laws": list(finding.broken),
        "text": finding.text,
        "actions": [list(action) for action in finding.case.actions],
    }


def markdown_of(explorations: Sequence[Exploration]) -> str:
    """The tables of the docs: what was visited, and in which scopes each law was exercised."""
    lines = [
        "| scope | states | moves | operations | depth | exercised | CPU | states/s | moves/s |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        *map(_row, explorations),
        _sum(explorations),
        "",
        "| law | its situation | exercised in |",
        "| --- | --- | --- |",
        *_law_rows(explorations),
    ]
    return "\n".join(lines) + "\n"


def _row(found: Exploration) -> str:
    cpu = max(found.cpu_seconds, 1e-9)
    state = "" if found.exhausted else ", BROKEN" if found.finding else f", {found.left:,} left"
    cells = (
        f"`{found.scope.name}`",
        f"{found.states:,}{state}",
        f"{found.edges:,}",
        f"{found.steps:,}",
        str(len(found.levels) - 1),
        f"{len(found.law_ids) - len(found.not_exercised)} of {len(found.law_ids)}",
        f"{found.cpu_seconds:,.0f} s",
        f"{found.states / cpu:,.0f}",
        f"{found.edges / cpu:,.0f}",
    )
    return f"| {' | '.join(cells)} |"


def _sum(explorations: Sequence[Exploration]) -> str:
    states = sum(each.states for each in explorations)
    moves = sum(each.edges for each in explorations)
    steps = sum(each.steps for each in explorations)
    cpu = sum(each.cpu_seconds for each in explorations)
    return f"| together | {states:,} | {moves:,} | {steps:,} | | | {cpu:,.0f} s | | |"


def _law_rows(explorations: Sequence[Exploration]) -> Iterator[str]:
    for law_id, law in LAWS.items():
        came = [each.scope.name for each in explorations if each.laws_exercised.get(law_id)]
        others = [each.scope.name for each in explorations if each.scope.name not in came]
        yield f"| {law_id} `{law.name}` | {law.premise.words} | {where_words(came, others)} |"


def where_words(came: Sequence[str], others: Sequence[str]) -> str:
    """The scopes that exercised a law; or "all but" the others, if those are fewer."""
    if not others:
        return "all"
    named = ", ".join(f"`{name}`" for name in min(came, others, key=len))
    return (f"all but {named}" if len(others) < len(came) else named) or "none"
