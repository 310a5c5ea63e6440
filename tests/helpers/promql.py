"""Evaluates the few forms of PromQL that the alert rules have, over scrapes of a test.

Whatever else a rule has is an error here, so that no rule passes unread.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import promql_parser as promql
from attrs import frozen

Labels: TypeAlias = frozenset[tuple[str, str]]
Vector: TypeAlias = dict[Labels, float]

COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "==": lambda one, other: one == other,
    ">": lambda one, other: one > other,
}


@frozen
class Scrape:
    """What was scraped at a time, in seconds: values by the name of a metric and its labels."""

    at: float
    values: Mapping[str, Mapping[Labels, float]]


def firing(expression: str, scrapes: Sequence[Scrape]) -> list[dict[str, str]]:
    """The labels for which an expression holds at the last scrape."""
    value = _value(promql.parse(expression), scrapes)
    assert isinstance(value, dict)
    return [dict(labels) for labels in value]


def metrics_in(expression: str) -> set[str]:
    """The metrics that an expression names; it must be PromQL. Raises: ValueError."""
    promql.parse(expression)
    return set(re.findall(r"\bkvcanon_\w+", expression))


def _value(node: object, scrapes: Sequence[Scrape]) -> Vector | float:
    match node:
        case promql.ParenExpr():
            return _value(node.expr, scrapes)
        case promql.NumberLiteral():
            return float(node.val)
        case promql.VectorSelector():
            return _selected(node, scrapes[-1])
        case promql.BinaryExpr():
            return _binary(node, _value(node.lhs, scrapes), _value(node.rhs, scrapes))
        case promql.Call():
            return _call(node, scrapes)
    raise AssertionError(f"no rule of ours has {type(node).__name__}")


def _selected(node: promql.VectorSelector, scrape: Scrape) -> Vector:
    wanted = {(each.name, each.value) for each in node.matchers.matchers}
    found = scrape.values.get(str(node.name), {})
    return {labels: value for labels, value in found.items() if wanted <= labels}


def _call(node: promql.Call, scrapes: Sequence[Scrape]) -> Vector | float:
    (argument,) = node.args or [None]
    if node.func.name == "time":
        return scrapes[-1].at
    if node.func.name == "absent":
        assert argument is not None
        return {} if _value(argument, scrapes) else {frozenset(): 1.0}
    assert node.func.name == "increase"
    assert isinstance(argument, promql.MatrixSelector)
    begins = scrapes[-1].at - argument.range.total_seconds()
    within = [each for each in scrapes if each.at >= begins]
    # A series that is not there at the beginning has no increase before its second value.
    rows = [_selected(argument.vector_selector, each) for each in within]
    last, found = rows[-1], {}
    for labels, value in last.items():
        first = next(row[labels] for row in rows if labels in row)
        found[labels] = value - first
    return found


def _binary(node: promql.BinaryExpr, one: Vector | float, other: Vector | float) -> Vector:
    operator = str(node.op)
    if operator in {"and", "unless"}:
        assert isinstance(one, dict)
        assert isinstance(other, dict)
        on = (
            set(node.modifier.matching.labels) if node.modifier and node.modifier.matching else None
        )
        kept = {_part(labels, on) for labels in other}
        wanted = operator == "and"
        return {key: value for key, value in one.items() if (_part(key, on) in kept) is wanted}
    if operator == "-":
        assert isinstance(one, float)
        assert isinstance(other, dict)
        return {labels: one - value for labels, value in other.items()}
    assert isinstance(one, dict)
    assert isinstance(other, float)
    holds = COMPARISONS[operator]
    return {labels: value for labels, value in one.items() if holds(value, other)}


def _part(labels: Labels, on: set[str] | None) -> Labels:
    return labels if on is None else frozenset(each for each in labels if each[0] in on)
