"""What kvcanon says of itself in a server: a line in the log, and metrics."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from threading import enumerate as threads

import pytest
from attrs import define
from prometheus_client import REGISTRY

from kvcanon.optimized.sglang import server_report
from kvcanon.optimized.sglang.native_tree import TreeOfNodes, TreeSettings, make_native
from kvcanon.optimized.sglang.server_metrics import LEFT_OUT, ServerMetrics
from kvcanon.optimized.sglang.server_report import line, read
from kvcanon.sglang_release import installed_version
from kvcanon.spec.types import EvictionPolicy

SETTINGS = TreeSettings(
    page_size=4,
    bigram=False,
    window_tokens=0,
    mamba=False,
    device_slots=(8, 0, 0),
    eviction_policy=EvictionPolicy.LRU,
    events=False,
)
PROMPT = array("q", range(16))


@define
class Core:
    """Of a tree core what a report needs."""

    native: TreeOfNodes


def used() -> TreeOfNodes:
    """A cache that has served a prompt twice."""
    native = make_native(SETTINGS)
    native.nodes.match(PROMPT)
    native.nodes.insert(PROMPT)
    native.nodes.match(PROMPT)
    return native


def test_a_line_says_what_happened_since_the_last() -> None:
    """Hits and sizes are those between two readings; without a match there is no line."""
    native = used()
    before = read(native)
    assert line(before, read(native)) == ""
    native.nodes.match(PROMPT)
    native.nodes.evict_step(0, 4)
    assert line(before, read(native)) == (
        "kvcanon: 1 matches of 16 tokens, 16 found on the device and 0 on the host; "
        "4 pages and states evicted, 0 calls refused; 0 nodes, 0 locks"
    )


def value(name: str, **labels: str) -> float:
    """A metric of the process; -1 where it is not there."""
    found = REGISTRY.get_sample_value(name, {"tp_rank": "3", **labels})
    return -1.0 if found is None else found


def test_metrics_have_sglangs_labels_and_only_grow() -> None:
    """Counters are those of the cache, under the labels of SGLang's own; a new cache adds to it."""
    metrics = ServerMetrics({"tp_rank": "3"})
    metrics.update(read(used()))
    assert value("kvcanon_matches_total") == 2
    assert value("kvcanon_asked_tokens_total") == 32
    assert value("kvcanon_hit_tokens_total", medium="GPU") == 16
    assert value("kvcanon_operation_calls_total", operation="insert") == 1
    assert value("kvcanon_slots", component="full", medium="GPU", state="evictable") == 4
    assert value("kvcanon_tree_core", version=installed_version()) == 1
    metrics.update(read(make_native(SETTINGS)))
    assert value("kvcanon_matches_total") == 2
    assert value("kvcanon_nodes") == 0
    metrics.update(read(used()))
    assert value("kvcanon_matches_total") == 4
    for name in LEFT_OUT:
        assert value(f"kvcanon_{name}_total") == value(f"kvcanon_{name}") == -1


@contextmanager
def reporting(core: Core) -> Iterator[None]:
    """A report of a core, until the block ends."""
    stop = server_report.begin(core, None)
    try:
        yield
    finally:
        stop.set()
        for each in threads():
            if each.name == "kvcanon-report":
                each.join(10)


def test_a_report_names_the_core_and_ends(caplog: pytest.LogCaptureFixture) -> None:
    """The first line says what serves; the thread ends with the report."""
    with caplog.at_level(logging.INFO, logger="kvcanon"), reporting(Core(used())):
        pass
    assert "is the tree core of this cache: pages of 4 tokens, components full" in caplog.text
    assert not [each for each in threads() if each.name == "kvcanon-report"]
