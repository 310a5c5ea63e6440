"""The marks of the vectors: where each lawful variation first answers differently."""

from __future__ import annotations

import pytest

from kvcanon.conformance.vectors import Vector, read_vectors
from kvcanon.lab.variants.marks import script_of

VECTORS = read_vectors()


@pytest.mark.parametrize("each", VECTORS, ids=[each.vector_id for each in VECTORS])
def test_calls_are_marked_where_another_answer_is_lawful(each: Vector) -> None:
    """The written script is what the case gives: calls, answers of the plain cache, and marks."""
    assert script_of(each.case) == each.script
