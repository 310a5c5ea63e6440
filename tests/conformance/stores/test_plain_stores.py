"""The plain stores and the disk tier keep every law of stores that they can be judged by."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from attrs import evolve

from kvcanon.conformance.engines.disk.disk_store import DISK
from kvcanon.conformance.stores.adapter import StoreAdapter, StoreOffer
from kvcanon.conformance.stores.case import (
    GetPages,
    LookAtMemory,
    PutPages,
    Restart,
    StopServer,
    StoreCase,
)
from kvcanon.conformance.stores.check import StoreStanding, StoreVerdict, check_store, ground_of
from kvcanon.conformance.stores.draw import draw_case, themes_of
from kvcanon.conformance.stores.fitted import fitted
from kvcanon.conformance.stores.plain_stores import FILES, MEMORY, file_adapter
from kvcanon.conformance.stores.play import play_case
from kvcanon.conformance.stores.witnesses import read_witnesses
from kvcanon.reference.stores import FileStore
from kvcanon.spec.stores import STORE_LAWS, Ability
from kvcanon.spec.stores.calls import GetCall, OpenCall, PutCall
from kvcanon.spec.stores.pages import PageKey

each_store = pytest.mark.parametrize(
    "adapter", [FILES, MEMORY, DISK], ids=["files", "memory", "disk"]
)


@each_store
def test_store_breaks_no_law_in_drawn_cases(adapter: StoreAdapter) -> None:
    """A turn of themes, of another seed than those of the faults."""
    with ground_of(adapter) as ground:
        for number in range(len(themes_of(adapter.offer))):
            played = play_case(adapter, ground, draw_case(adapter.offer, 5, number))
            assert [(each.law.law_id, each.words) for each in played.broken] == [], number


@each_store
def test_store_breaks_no_law_in_witnesses(adapter: StoreAdapter) -> None:
    """A witness shows a fault, and none in a store that has none."""
    with ground_of(adapter) as ground:
        for law_id, witnesses in read_witnesses().items():
            for case in witnesses:
                broken = play_case(adapter, ground, case).broken
                assert [(each.law.law_id, each.words) for each in broken] == [], law_id


def test_every_law_is_offered_by_one_of_them() -> None:
    """No law needs an ability that neither of the stores has."""
    for law in STORE_LAWS.values():
        assert law.needs <= FILES.offer.abilities or law.needs <= MEMORY.offer.abilities


@pytest.mark.nightly
@each_store
def test_quick_check_holds_and_exercises_all_that_is_offered(adapter: StoreAdapter) -> None:
    """A whole quick check leaves no law that is offered unexercised."""
    report = check_store(adapter)
    assert report.verdict is StoreVerdict.HOLDS
    assert StoreStanding.NOT_EXERCISED not in report.standings.values()


def test_case_is_fitted_to_what_a_store_offers() -> None:
    """A witness with two pools, a tenant and a page size is played without those."""
    offer = StoreOffer(identity_fields=("weights",), page_bytes=(4096, 8192))
    case = StoreCase((PutPages(prompt=5), StopServer()), 2, pools=2, other="page_size")
    plain = StoreCase((PutPages(prompt=1), StopServer()), 2, page_bytes=4096)
    assert fitted(case, offer) == plain
    assert fitted(case, FILES.offer) == case


def test_finding_has_the_sizes_that_were_played(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that takes pages of one size is shown none of another."""

    class Forgetful(FileStore):
        def put(self, pages: Sequence[tuple[PageKey, bytes]]) -> list[bool]:
            assert {len(content) for _, content in pages} == {4096}
            return [True] * len(pages)

    made = file_adapter("forgetful", Forgetful)
    one_pool = made.offer.abilities - {Ability.POOLS}
    offer = StoreOffer(one_pool, identity_fields=(), page_bytes=(4096,))
    case = StoreCase((PutPages(count=3), GetPages(count=3)), page_bytes=64)
    cases = "kvcanon.conformance.stores.check.cases_of"
    monkeypatch.setattr(cases, lambda *_: [("this case", case)])
    report = check_store(evolve(made, offer=offer))
    (finding,) = report.findings
    assert finding.law.law_id == "STORE-10"
    assert finding.case.page_bytes == 4096


def test_fault_that_does_not_show_again_is_reported_as_it_was_seen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The words and the calls are those of the time when it showed."""

    class OnceWrong(FileStore):
        def get_one(self, key: PageKey, buffer: memoryview) -> int | None:
            length = super().get_one(key, buffer)
            if not (tmp_path / "shown").exists():
                (tmp_path / "shown").touch()
                buffer[0] ^= 1
            return length

    case = StoreCase((PutPages(), GetPages(), GetPages()))
    cases = "kvcanon.conformance.stores.check.cases_of"
    monkeypatch.setattr(cases, lambda *_: [("this case", case)])
    (finding,) = check_store(file_adapter("once", OnceWrong)).findings
    assert not finding.repeats
    assert finding.words.startswith("get gave 64 bytes that differ from byte 0 on")
    assert [type(step.call) for step in finding.steps] == [OpenCall, PutCall, GetCall]
    assert finding.case.actions == case.actions[:2]


def test_a_store_that_ends_its_process_in_an_open_ends_the_case() -> None:
    """It is reported once, and not opened again and again."""

    class Deadly(FileStore):
        def __attrs_post_init__(self) -> None:
            os._exit(3)

    adapter = file_adapter("deadly", Deadly)
    with ground_of(adapter) as ground:
        played = play_case(adapter, ground, StoreCase((PutPages(),)))
    assert [each.law.law_id for each in played.broken] == ["STORE-27"]
    assert len(played.steps) == 1


def test_a_store_that_one_prompt_fills_may_refuse_its_next_page() -> None:
    """Only pages that the new one follows could be evicted, which would part the prompt."""
    actions = (PutPages(count=6), PutPages(first=6, count=2))
    with ground_of(MEMORY) as ground:
        played = play_case(MEMORY, ground, StoreCase(actions, page_bytes=12288, capacity_pages=3))
    assert not played.broken


def test_a_page_that_is_put_after_its_parent_was_evicted_breaks_no_law() -> None:
    """Who puts it parts the prompt, and no eviction does."""
    actions = (
        PutPages(count=6),
        PutPages(prompt=3, count=6),
        PutPages(first=5, count=1),
        LookAtMemory(),
    )
    case = StoreCase(actions, page_bytes=12288, capacity_pages=3)
    with ground_of(MEMORY) as ground:
        played = play_case(MEMORY, ground, case)
    assert [(each.law.law_id, each.words) for each in played.broken] == []


def test_one_writer_has_a_store_open_that_cannot_be_shared() -> None:
    """Before a second opens it, or a first opens it again, all others have closed it."""

    class Alone(FileStore):
        def __attrs_post_init__(self) -> None:
            super().__attrs_post_init__()
            (self.home / "alone").touch(exist_ok=False)

        def close(self) -> None:
            (self.home / "alone").unlink()

    alone = file_adapter("alone", Alone)
    adapter = evolve(
        alone, offer=evolve(alone.offer, abilities=alone.offer.abilities - {Ability.SHARED})
    )
    actions = (PutPages(0), Restart(1), PutPages(0, prompt=2), Restart(0), PutPages(1), Restart(1))
    with ground_of(adapter) as ground:
        played = play_case(adapter, ground, StoreCase(actions, writers=2))
    assert [(each.law.law_id, each.words) for each in played.broken] == []
