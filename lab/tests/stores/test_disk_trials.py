"""Trials of the disk tier: none finds anything in it, and they find what is planted."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvcanon.disk import DiskStore
from kvcanon.lab.stores.disk_harm import HARMS
from kvcanon.lab.stores.disk_trials import KILL, DiskTrials
from kvcanon.lab.stores.planted_disk import (
    RecordOfSlotAlone,
    RefusesDamagedJournal,
    SlotNotVerified,
    StartsAnew,
)


def trials(root: Path, store_class: type[DiskStore], count: int, kills: int = 0) -> DiskTrials:
    """Damage a store many times."""
    done = DiskTrials(root / "disk", 3, store_class)
    for _ in range(count):
        done.damage()
    for _ in range(kills):
        done.kill()
    return done


def test_disk_tier_survives_kills_and_damage(tmp_path: Path) -> None:
    """No wrong byte, no refusal, no acknowledged page is lost; every harm was tried."""
    done = trials(tmp_path, DiskStore, 120, kills=8)
    assert done.wrong == []
    assert done.trials[KILL] == 8
    assert len(done.trials) == len(HARMS) + 1
    assert done.found > 1000
    assert done.spoiled > 20


@pytest.mark.parametrize(
    ("store_class", "words"),
    [
        (SlotNotVerified, "wrong bytes"),
        (RecordOfSlotAlone, "wrong bytes"),
        (StartsAnew, "is lost"),
        (RefusesDamagedJournal, "open raised DiskUnusable"),
    ],
)
def test_trials_find_a_fault(tmp_path: Path, store_class: type[DiskStore], words: str) -> None:
    """A disk that proves too little, forgets or refuses is found."""
    done = trials(tmp_path, store_class, 60)
    assert any(words in each for each in done.wrong)
