"""Witnesses: for each law of stores the shortest cases in which planted faults break it.

They are in `witnesses.json`, one list of cases a law. `kvcanon lab stores --witnesses` writes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from kvcanon.conformance.stores.case import StoreCase, case_from_json

FILE = Path(__file__).with_name("witnesses.json")


@cache
def read_witnesses() -> Mapping[str, tuple[StoreCase, ...]]:
    """The witnesses of each law that has some."""
    if not FILE.exists():
        return {}
    rows = json.loads(FILE.read_text("utf-8"))
    return {law_id: tuple(map(case_from_json, cases)) for law_id, cases in rows.items()}


def witnesses_text(witnesses: Mapping[str, list[StoreCase]]) -> str:
    """The text of the file with these witnesses: a case on a line."""
    parts = []
    for law_id, cases in witnesses.items():
        lines = ",\n    ".join(json.dumps(case.as_json()) for case in cases)
        parts.append(f'  "{law_id}": [\n    {lines}\n  ]')
    return "{\n" + ",\n".join(parts) + "\n}\n"
