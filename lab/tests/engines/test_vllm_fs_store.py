"""vLLM's fs tier as a store: what its adapter passes on, and the laws that docs/stores.md names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from attrs import evolve

from kvcanon.conformance.stores.adapter import StoreAdapter, StoreGround
from kvcanon.conformance.stores.check import cases_of, ground_of
from kvcanon.conformance.stores.names import load_store
from kvcanon.conformance.stores.play import play_case
from kvcanon.spec.stores.page_store import PageStore
from kvcanon.spec.stores.pages import PageKey, StoreIdentity
from kvcanon.spec.types import Namespace

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
"""vLLM's imports warn of their own."""
BROKEN = {"STORE-2", "STORE-4", "STORE-5", "STORE-8", "STORE-23"}
IDENTITY = StoreIdentity()
KEYS = [PageKey(tuple(range(4 * (page + 1)))) for page in range(3)]
PAGE_BYTES = 4096
CONTENTS = [bytes([page + 1]) * PAGE_BYTES for page in range(3)]


@pytest.fixture(name="adapter")
def _adapter() -> StoreAdapter:
    """It imports vLLM."""
    return load_store("vllm-fs")


@pytest.fixture(name="ground")
def _ground(adapter: StoreAdapter) -> Iterator[StoreGround]:
    """An empty folder."""
    with ground_of(adapter) as ground:
        ground.empty()
        yield ground


@pytest.fixture(name="store")
def _store(ground: StoreGround) -> Iterator[PageStore]:
    """An empty store."""
    made = ground.open(IDENTITY, None)
    yield made
    made.close()


def read(store: PageStore, keys: list[PageKey]) -> list[bytes | None]:
    """The pages that a get gives."""
    buffers = [bytearray(PAGE_BYTES) for _ in keys]
    lengths = store.get([(key, memoryview(each)) for key, each in zip(keys, buffers, strict=True)])
    return [
        None if length is None else bytes(each[:length])
        for length, each in zip(lengths, buffers, strict=True)
    ]


def test_pages_come_back(store: PageStore) -> None:
    """What was put is there, in any order, and counted up to the first that is not."""
    assert store.put([(KEYS[at], CONTENTS[at]) for at in (0, 2)]) == [True, True]
    assert store.exists(KEYS) == [True, False, True]
    assert store.leading_run(KEYS) == 1
    assert read(store, KEYS[::-1]) == [CONTENTS[2], None, CONTENTS[0]]


def test_buffers_of_other_sizes(store: PageStore) -> None:
    """A smaller one gets nothing; of a larger one the first bytes are the page."""
    store.put([(KEYS[0], CONTENTS[0])])
    small, large = bytearray(PAGE_BYTES // 2), bytearray(2 * PAGE_BYTES)
    assert store.get([(KEYS[0], memoryview(each)) for each in (small, large)]) == [None, PAGE_BYTES]
    assert not any(small)
    assert large == CONTENTS[0] + bytes(PAGE_BYTES)


def test_names_are_vllms(store: PageStore, ground: StoreGround) -> None:
    """Another salt or adapter names another page; the file of a page is where it is looked for."""
    assert not ground.files_of(IDENTITY, KEYS[0])
    store.put([(KEYS[0], CONTENTS[0])])
    (file,) = ground.files_of(IDENTITY, KEYS[0])
    assert file.read_bytes() == CONTENTS[0]
    spaces = Namespace(cache_salt="a"), Namespace(lora="a")
    assert store.exists([evolve(KEYS[0], namespace=space) for space in spaces]) == [False, False]


def test_it_breaks_what_the_page_says_and_nothing_else(adapter: StoreAdapter) -> None:
    """The witnesses, and the first drawn cases."""
    broken: set[str] = set()
    with ground_of(adapter) as ground:
        cases = list(cases_of(adapter, "quick", 0))
        for _, case in cases[: len(cases) - 90]:
            broken |= {each.law.law_id for each in play_case(adapter, ground, case).broken}
    assert broken == BROKEN
