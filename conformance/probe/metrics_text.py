"""Reads the few metrics of a server that the probe needs, in the text format of Prometheus."""

from __future__ import annotations

import re

from kvcanon.conformance.probe.transport import EngineAddress, ServerProblem, ask

_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def metrics_of(address: EngineAddress) -> str:
    """The metrics of a server; empty if it has none."""
    try:
        return ask(address, "GET", "/metrics").decode(errors="replace")
    except ServerProblem as problem:
        if problem.is_end:
            raise
        return ""


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
