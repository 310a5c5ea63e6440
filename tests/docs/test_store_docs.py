"""docs/stores.md: its table is today's, and its example keeps the laws."""

from __future__ import annotations

import pytest

from kvcanon.conformance.stores.check import first_break, ground_of
from kvcanon.conformance.stores.draw import draw_case
from kvcanon.conformance.stores.names import STORES, load_store
from kvcanon.conformance.stores.play import play_case
from kvcanon.lab.site.tables import page_with_tables
from kvcanon.spec.stores import STORE_LAWS
from paths import DOCS, ROOT

PAGE = (DOCS / "stores.md").read_text("utf-8")


def test_table_of_laws_is_todays() -> None:
    """The table is what the laws say."""
    path, text = page_with_tables("--stores", ROOT)
    assert path.read_text("utf-8") == text


def test_page_has_the_number_of_laws() -> None:
    """Where the page counts the laws, it counts right; so does the README."""
    assert f"which of {len(STORE_LAWS)} laws it breaks" in PAGE
    readme = (ROOT / "README.md").read_text("utf-8")
    assert f"{len(STORE_LAWS)} laws of stores" in readme


def test_page_names_the_stores_that_there_are() -> None:
    """Each short name is on the page."""
    assert all(f"`{name}`" in PAGE for name in STORES)


def test_example_breaks_no_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two turns of drawn cases on the store of the page."""
    monkeypatch.syspath_prepend(DOCS / "examples" / "stores")
    adapter = load_store("sqlite_store:ADAPTER")
    with ground_of(adapter) as ground:
        for number in range(20):
            broken = play_case(adapter, ground, draw_case(adapter.offer, 0, number)).broken
            assert [(each.law.law_id, each.words) for each in broken] == [], number


def test_example_without_its_checksum_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example is judged by what it is there for: without the checksum damage is served."""
    monkeypatch.syspath_prepend(DOCS / "examples" / "stores")
    adapter = load_store("sqlite_store:ADAPTER")
    import sqlite_store  # type: ignore[import-not-found]  # noqa: PLC0415

    class Same:
        def __init__(self, _: bytes) -> None:
            pass

        def digest(self) -> bytes:
            return b"same"

    monkeypatch.setattr(sqlite_store.hashlib, "sha256", Same)
    law = STORE_LAWS["STORE-2"]
    with ground_of(adapter) as ground:
        cases = (draw_case(adapter.offer, 0, number) for number in range(40))
        assert any(first_break(play_case(adapter, ground, case), law) for case in cases)
