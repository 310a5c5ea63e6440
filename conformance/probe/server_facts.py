"""What servers say of themselves, whatever their dialect: metrics, and the fields of requests."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from kvcanon.conformance.probe.transport import (
    EngineAddress,
    JsonObject,
    ServerProblem,
    ask,
    ask_json,
)

_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
Said = TypeVar("Said")


def said(ask_for: Callable[[], Said], otherwise: Said) -> Said:
    """What a server says, or something else where it does not. Raises: ServerProblem: it ended."""
    try:
        return ask_for()
    except ServerProblem as problem:
        if problem.is_end:
            raise
        return otherwise


def object_at(address: EngineAddress, path: str) -> JsonObject:
    """The JSON object at a path; empty if the server has none. Raises: ServerProblem: it ended."""
    return said(lambda: ask_json(address, "GET", path), {})


def request_fields(address: EngineAddress, schema: str) -> frozenset[str] | None:
    """The fields that a request may have; None if the schema cannot be read."""

    def read() -> frozenset[str] | None:
        try:
            schemas = ask_json(address, "GET", "/openapi.json")["components"]["schemas"]
            return frozenset(schemas[schema]["properties"])
        except (KeyError, TypeError):
            return None

    return said(read, None)


def metrics_of(address: EngineAddress) -> str:
    """The metrics of a server, in the text format of Prometheus; empty if it has none."""
    return said(lambda: ask(address, "GET", "/metrics").decode(errors="replace"), "")


def metric_value(text: str, name: str) -> float | None:
    """The sum of a metric over its labels; None if it is not there."""
    found = [line.rpartition(" ")[2] for line in _lines(text, name)]
    try:
        return sum(float(value) for value in found) if found else None
    except ValueError:
        return None


def metric_labels(text: str, name: str) -> dict[str, str]:
    """The labels of the first line of a metric; empty if it is not there."""
    return {
        label: value for line in _lines(text, name)[:1] for label, value in _LABEL.findall(line)
    }


def _lines(text: str, name: str) -> list[str]:
    return [line for line in text.splitlines() if re.match(rf"{re.escape(name)}[{{ ]", line)]
