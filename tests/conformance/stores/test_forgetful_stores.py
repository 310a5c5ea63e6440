"""A store of files that finds nothing when it is opened again is judged while it has them open."""

from __future__ import annotations

import os

from attrs import evolve

from kvcanon.conformance.stores.adapter import StoreAdapter
from kvcanon.conformance.stores.case import (
    DamageFile,
    GetPages,
    KillInPut,
    PutOnFullDisk,
    PutPages,
    Restart,
    StoreCase,
)
from kvcanon.conformance.stores.check import ground_of
from kvcanon.conformance.stores.draw import draw_case, themes_of
from kvcanon.conformance.stores.fitted import fitted
from kvcanon.conformance.stores.plain_stores import file_adapter
from kvcanon.conformance.stores.play import play_case
from kvcanon.conformance.stores.witnesses import read_witnesses
from kvcanon.reference.stores import FileStore
from kvcanon.spec.stores import STORE_LAWS, Ability
from kvcanon.spec.stores.calls import Interruption, PutCall
from kvcanon.spec.stores.pages import PageKey


class Forgetful(FileStore):
    """A store that knows only what it has put itself."""

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.index: set[PageKey] = set()

    def put_one(self, key: PageKey, content: bytes) -> bool:
        """Write a page, and note it."""
        done = super().put_one(key, content)
        if done:
            self.index.add(key)
        return done

    def has(self, key: PageKey) -> bool:
        """Whether a page was noted, and has a file."""
        return key in self.index and super().has(key)

    def get_one(self, key: PageKey, buffer: memoryview) -> int | None:
        """Read a page that was noted."""
        return super().get_one(key, buffer) if key in self.index else None


def adapter_of(kind: type[FileStore]) -> StoreAdapter:
    """The adapter of such a store: it has files, and is neither durable nor shared."""
    adapter = file_adapter("forgetful", kind)
    abilities = adapter.offer.abilities - {Ability.DURABLE, Ability.SHARED}
    return evolve(adapter, offer=evolve(adapter.offer, abilities=abilities))


FORGETFUL = adapter_of(Forgetful)


def broken_by(kind: type[FileStore], case: StoreCase) -> set[str]:
    """The laws that a store breaks in a case."""
    adapter = adapter_of(kind)
    with ground_of(adapter) as ground:
        return {each.law.law_id for each in play_case(adapter, ground, case).broken}


def test_store_that_proves_what_it_reads_breaks_no_law() -> None:
    """It is damaged while it is open, and what it forgets in a restart is not asked for."""
    met: set[str] = set()
    with ground_of(FORGETFUL) as ground:
        cases = [draw_case(FORGETFUL.offer, 5, at) for at in range(len(themes_of(FORGETFUL.offer)))]
        for law_id, witnesses in read_witnesses().items():
            cases += witnesses if STORE_LAWS[law_id].needs <= FORGETFUL.offer.abilities else ()
        for case in cases:
            played = play_case(FORGETFUL, ground, case)
            assert [(each.law.law_id, each.words) for each in played.broken] == [], case
            met.update(played.met)
    assert {"STORE-2", "STORE-3", "STORE-4", "STORE-5"} <= met


def test_damage_that_is_served_is_found() -> None:
    """A file is flipped between a put and a get of one open store."""

    class Trusting(Forgetful):
        def get_one(self, key: PageKey, buffer: memoryview) -> int | None:
            if key not in self.index:
                return None
            data = self.file_of(key).read_bytes()[-len(buffer) :]
            buffer[: len(data)] = data
            return len(data)

    case = StoreCase((PutPages(), DamageFile(kind=2, place=15), GetPages()))
    assert broken_by(Trusting, case) == {"STORE-2"}
    assert broken_by(Forgetful, case) == set()


def test_disk_that_is_full_is_met() -> None:
    """A put is answered with no when its file cannot grow, and with yes afterwards."""
    case = StoreCase((PutOnFullDisk(most=0), PutPages(), GetPages()))
    with ground_of(FORGETFUL) as ground:
        played = play_case(FORGETFUL, ground, case)
    puts = [step for step in played.steps if isinstance(step.call, PutCall)]
    assert [step.call.interruption for step in puts if isinstance(step.call, PutCall)] == [
        Interruption.WRITES_FAIL,
        Interruption.NONE,
    ]
    assert [getattr(step.answer, "value", None) for step in puts] == [(False,), (True,)]
    assert not played.broken


def test_each_identity_has_one_writer() -> None:
    """Another process with the same identity has another store."""
    case = StoreCase((PutPages(1), GetPages(2)), writers=3)
    assert fitted(case, FORGETFUL.offer).writers == 1
    assert fitted(evolve(case, other="weights"), FORGETFUL.offer).writers == 2
    assert broken_by(Forgetful, case) == set()


def test_what_a_restart_forgets_is_not_asked_for() -> None:
    """No law says that it is found, nor after a put whose process would have been killed."""
    actions = (PutPages(count=3), Restart(), GetPages(count=3), KillInPut(), GetPages(count=3))
    assert broken_by(Forgetful, StoreCase(actions)) == set()


def test_store_that_ends_its_process_has_forgotten_its_pages() -> None:
    """The end is reported, and not that the pages are gone."""

    class Deadly(Forgetful):
        def get_one(self, key: PageKey, buffer: memoryview) -> int | None:
            if (self.folder / "died").exists():
                return super().get_one(key, buffer)
            (self.folder / "died").touch()
            os._exit(3)

    assert broken_by(Deadly, StoreCase((PutPages(count=3), GetPages(), GetPages()))) == {"STORE-27"}
