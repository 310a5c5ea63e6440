"""The examples of adapters are short and break no law, and a fault planted in two is found."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from attrs import evolve

from adapter_page import PAGE
from kvcanon.conformance.protocol.cache_names import load_adapter
from kvcanon.conformance.protocol.pipe import pipe_adapter
from kvcanon.spec.operations import Receipt
from their_caches import EXAMPLES, adapter_from, broken_laws

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="node, which runs the example, is not here")


@pytest.fixture(name="simple")
def simple_module(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The example in Python."""
    monkeypatch.syspath_prepend(EXAMPLES)
    load_adapter("simple_cache:ADAPTER")
    yield sys.modules["simple_cache"]
    del sys.modules["simple_cache"]


def test_python_example_is_lawful(simple: ModuleType) -> None:
    """The example in Python breaks no law."""
    spoken, total = broken_laws(simple.ADAPTER, cases=150)
    assert not spoken
    assert not total.unoffered
    for law_id in ("MATCH-1", "REC-3", "EVENT-4", "EVICT-1", "LOCK-4", "REFUSE-1"):
        assert total.laws[law_id], law_id


def forget_namespaces(cache: Any) -> None:  # noqa: ANN401  # A class of a module that is loaded late.
    """Namespaces share pages."""
    hashes_of = sys.modules[cache.__module__].hashes_of
    cache.prefix = lambda self, key: [
        self.blocks[page_hash]
        for page_hash in hashes_of(evolve(key, namespace=evolve(key.namespace, lora=None)))
        if page_hash in self.blocks
    ]


def evict_the_latest(cache: Any) -> None:  # noqa: ANN401  # As above.
    """A use makes nothing recent."""
    cache.touch = lambda self, blocks: None


def forget_a_removal(cache: Any) -> None:  # noqa: ANN401  # As above.
    """An eviction emits no event."""
    remove = cache.remove

    def silently(self: Any, block: object) -> None:  # noqa: ANN401  # As above.
        remove(self, block)
        self.events.pop()

    cache.remove = silently


def unlock_nothing(cache: Any) -> None:  # noqa: ANN401  # As above.
    """An unlock leaves the pages of its receipt locked."""

    def unlock(self: Any, receipt: Receipt) -> None:  # noqa: ANN401  # As above.
        del self.receipts[receipt.receipt_id]

    cache.unlock = unlock


@pytest.mark.parametrize(
    ("plant", "law_id"),
    [
        (forget_namespaces, "MATCH-1"),
        (evict_the_latest, "REC-3"),
        (forget_a_removal, "EVENT-4"),
        (unlock_nothing, "EVICT-1"),
    ],
)
def test_fault_in_the_python_example_is_found(simple: ModuleType, plant: Any, law_id: str) -> None:  # noqa: ANN401  # As above.
    """A fault planted in the example in Python is found."""
    planted = type("Planted", (simple.SimpleCache,), {"__module__": simple.__name__})
    plant(planted)
    spoken, _ = broken_laws(evolve(simple.ADAPTER, make=planted), cases=60)
    assert law_id in spoken


def javascript(folder: Path = EXAMPLES) -> str:
    """The command of the example in JavaScript."""
    return shlex.join([str(NODE), str(folder / "simple_cache.mjs")])


@needs_node
def test_javascript_example_is_lawful() -> None:
    """The example in JavaScript breaks no law behind a pipe."""
    spoken, total = broken_laws(pipe_adapter(javascript()), cases=40)
    assert not spoken
    assert not total.unoffered
    for law_id in ("MATCH-1", "REC-3", "EVENT-4", "EVENT-6", "EVICT-1", "REFUSE-1"):
        assert total.laws[law_id], law_id


@needs_node
@pytest.mark.parametrize(
    ("good", "bad", "law_id"),
    [
        ("other.used < one.used", "other.used > one.used", "REC-3"),
        ('createHash("sha256").update(hash)', 'createHash("sha256")', "EVENT-6"),
        ("block.locks -= 1", "block.locks -= 0", "EVICT-1"),
        ("free.push(...surplus)", "", "ALLOC-3"),
    ],
)
def test_fault_in_the_javascript_example_is_found(
    tmp_path: Path, good: str, bad: str, law_id: str
) -> None:
    """A fault planted in the example in JavaScript is found through the pipe."""
    source = (EXAMPLES / "simple_cache.mjs").read_text(encoding="utf-8")
    assert source.count(good) == 1
    (tmp_path / "simple_cache.mjs").write_text(source.replace(good, bad), encoding="utf-8")
    spoken, _ = broken_laws(pipe_adapter(javascript(tmp_path)), cases=40)
    assert law_id in spoken


RADIX = {
    "MATCH-1",
    "MATCH-2",
    "MATCH-3",
    "MATCH-6",
    "REC-3",
    "LOCK-4",
    "LOCK-9",
    "LOCK-10",
    "ALLOC-1",
    "ALLOC-3",
    "ALLOC-5",
    "ALLOC-6",
    "EVICT-1",
    "EVICT-2",
    "RES-3",
    "DATA-1",
    "REFUSE-1",
    "REFUSE-2",
}
WINDOW = RADIX | {"EVICT-3"}
BLOCKS = {
    "MATCH-1",
    "MATCH-2",
    "MATCH-3",
    "MATCH-6",
    "LOCK-4",
    "LOCK-10",
    "ALLOC-1",
    "ALLOC-5",
    "DATA-1",
    "REFUSE-1",
    "EVENT-1",
    "EVENT-2",
    "EVENT-4",
    "EVENT-5",
    "EVENT-6",
    "EVENT-9",
    "EVENT-10",
    "EVENT-12",
}


def lines_of(path: Path) -> int:
    """How many lines of a file are not blank, imports and docstrings included."""
    return sum(bool(line.strip()) for line in path.read_text("utf-8").splitlines())


@pytest.mark.parametrize(
    ("cache", "most"), [("their_radix", 80), ("their_window", 130), ("their_blocks", 60)]
)
def test_worked_adapters_are_short(cache: str, most: int) -> None:
    """Each adapter has fewer lines than the page says."""
    assert lines_of(EXAMPLES / f"{cache}_adapter.py") < most


@pytest.mark.parametrize(
    ("cache", "laws"),
    [("their_radix", RADIX), ("their_window", WINDOW), ("their_blocks", BLOCKS)],
)
def test_worked_adapters_are_lawful(cache: str, laws: set[str]) -> None:
    """The caches behind the worked adapters break no law, and these laws are exercised."""
    with adapter_from(EXAMPLES, f"{cache}_adapter") as adapter:
        spoken, total = broken_laws(adapter, cases=100)
    assert not spoken
    assert not total.unoffered
    assert {law_id for law_id, count in total.laws.items() if count} >= laws


def test_page_about_adapters_names_them() -> None:
    """The adapters, and the caches, are on the page."""
    for name in ("their_radix", "their_window", "their_blocks"):
        assert f"examples/adapters/{name}.py" in PAGE
        assert f"examples/adapters/{name}_adapter.py" in PAGE
