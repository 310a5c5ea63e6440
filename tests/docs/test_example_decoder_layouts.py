"""The decoder of docs/examples has the same bits on tensors of every named layout."""

from __future__ import annotations

import pytest

from decoder_layouts import LAYOUTS, allocate_as
from example_decoder import PAGE, check, evict_all, make, serve, serve_one, words
from kvcanon.optimized.engine_tensors import TENSOR_LAYOUTS
from kvcanon.optimized.threaded_engine import ThreadedEngine
from kvcanon.spec.types import Counts

pytestmark = pytest.mark.usefixtures("_one_thread")

DEVICE, HOST = Counts(full=200, swa=200), Counts(full=300, swa=300)


def test_every_named_layout_is_served() -> None:
    """There is a case for each name."""
    assert {name.split(",")[0] for name in LAYOUTS} == set(TENSOR_LAYOUTS)


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_bits_do_not_depend_on_the_layout(name: str, transfers: ThreadedEngine) -> None:
    """Device hits, and pages that come back from the host, give the bits of a plain decoder."""
    scheduler = make(transfers, DEVICE, HOST, allocated=allocate_as(name))
    stem = words(1, 26)
    served = serve(scheduler, stem + words(2, 7), stem + words(3, 12))
    again = serve_one(scheduler, served[0].tokens + words(4, 5))
    assert again.reused_pages == (len(served[0].tokens) - 1) // PAGE
    evict_all(scheduler)
    loaded = serve_one(scheduler, again.tokens + words(5, 6))
    assert loaded.loaded_pages == loaded.reused_pages == (len(again.tokens) - 1) // PAGE
    check(scheduler, *served, again, loaded)
