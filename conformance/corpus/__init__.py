"""The corpus: cases that reach what few drawn cases reach, each with what that is.

A check plays them with every seed, before it draws any. They were drawn in a long run on the plain
cache, thinned and shortened by `kvcanon lab corpus`, which writes `cases.jsonl`: one case a line.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from attrs import frozen

from kvcanon.conformance.cases.case import Case, case_from_json

FILE = Path(__file__).with_name("cases.jsonl")


@frozen
class KeptCase:
    """A case of the corpus."""

    case: Case
    reaches: str
    """An operation of the plain cache, and two of its branches that few cases take in one call."""


@cache
def read_corpus() -> tuple[KeptCase, ...]:
    """Return all cases of the corpus, in the order in which they are played."""
    lines = FILE.read_text("utf-8").splitlines()
    values = [json.loads(line) for line in lines]
    return tuple(KeptCase(case_from_json(each["case"]), each["reaches"]) for each in values)
