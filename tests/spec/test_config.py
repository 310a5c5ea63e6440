"""The configuration: valid settings, and the refusal of invalid ones."""

from __future__ import annotations

from typing import Any

import pytest

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.types import FULL, MAMBA, SWA, Counts, EvictionPolicy, WritePolicy


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"page_size": 0}, "page_size: is 0; it must be a whole number of at least 1"),
        ({"page_size": 1.5}, "page_size: is 1.5"),
        ({"window_tokens": 0}, "window_tokens: is 0"),
        ({"device_slots": Counts(full=-1)}, "device_slots.full: is -1"),
        ({"host_slots": Counts(full=1)}, "write_policy: is none, but host slots are given"),
        ({"write_policy": "sometimes"}, "write_policy: is 'sometimes'; choose of none, write_t"),
        ({"eviction_policy": "best"}, "eviction_policy: is 'best'; choose of lru, lfu, fifo"),
        ({"load_back_threshold_pages": -1}, "load_back_threshold_pages: is -1"),
        ({"slot_bytes": 0}, "slot_bytes: is 0"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_config_that_makes_no_sense_is_refused(wrong: dict[str, Any], said: str) -> None:
    """An invalid setting is refused with a text that says what is valid."""
    with pytest.raises(BadArgument) as info:
        CacheConfig(**wrong)
    assert str(info.value).startswith(said)


def test_policies_may_be_given_by_name() -> None:
    """A policy can be given by its name."""
    config = CacheConfig(write_policy="write_back", eviction_policy="slru")
    assert config.write_policy is WritePolicy.WRITE_BACK
    assert config.eviction_policy is EvictionPolicy.SLRU


@pytest.mark.parametrize(
    ("policy", "hits", "backed_parents"),
    [
        (WritePolicy.NONE, None, False),
        (WritePolicy.WRITE_THROUGH, 1, True),
        (WritePolicy.WRITE_THROUGH_SELECTIVE, 2, True),
        (WritePolicy.WRITE_BACK, None, False),
    ],
)
def test_write_policy_decides_when_and_what(
    policy: WritePolicy, hits: int | None, backed_parents: bool
) -> None:
    """Each write policy has its threshold of hits, and says whether parents need a backup."""
    config = CacheConfig(write_policy=policy)
    assert config.backup_hits == hits
    assert config.backed_parents is backed_parents


@pytest.mark.parametrize(("window", "pages"), [(None, 0), (1, 1), (4, 1), (5, 2), (8, 2)])
def test_window_is_covered_by_whole_pages(window: int | None, pages: int) -> None:
    """Every page that the window reaches into counts."""
    config = CacheConfig(page_size=4, window_tokens=window)
    assert config.window_pages == pages
    assert (SWA in config.components) is (window is not None)


def test_components_come_in_the_order_of_the_cascade() -> None:
    """Components are those that were configured, full data first."""
    assert CacheConfig().components == (FULL,)
    assert CacheConfig(window_tokens=4, mamba=True).components == (FULL, SWA, MAMBA)
