"""sgl#26615, recency of window data: its rules, and its five tests over pages and windows.

The report's tests read the order of a list. These read the victims: window data is evicted page by
page, until the first page of another prompt is evicted that was used in between.
"""

from __future__ import annotations

import pytest

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.operations import LoadDecision
from kvcanon.spec.oracle.pages import pages_covering
from kvcanon.spec.types import FULL, GPU, MAMBA, SWA, Counts
from scenes import BOTH_CACHES, Judged, judged

each_window = pytest.mark.parametrize(
    ("page_size", "window"), [(1, 1), (1, 2), (1, 4), (2, 1), (2, 3), (2, 4), (4, 2), (4, 8)]
)
PAGES = 7
POOLS = Counts(full=24, swa=24)


def chain(s: Judged, pages: int, *, first: int = 1) -> list[int]:
    """Insert a prompt in nodes of one page each."""
    size = s.cache.config.page_size
    tokens = list(range(first, first + pages * size))
    for length in range(1, pages + 1):
        s.put(tokens[: length * size], start=length - 1)
    return tokens


def kept_when_another_leaves(s: Judged, tokens: list[int], other: list[int]) -> str:
    """Return the pages of a prompt that have window data when the first of another's is evicted."""
    while s.see(other, SWA).startswith("#"):
        assert s.evict(swa=1).swa
    return s.see(tokens, SWA)


def window_and_cushion(pages: int, page_size: int, window: int) -> str:
    """Return the pages at a prompt's end that a use makes recent: its window and one page more."""
    recent = pages_covering(window, page_size) + 1
    return "." * (pages - recent) + "#" * recent


@each_window
def test_report_insert_refreshes_no_ancestor_on_its_way(
    name: str, page_size: int, window: int
) -> None:
    """An insert makes only the window at its end recent, and one page more."""
    config = CacheConfig(page_size=page_size, window_tokens=window, device_slots=POOLS)
    s = judged(name, config)
    tokens = chain(s, PAGES)
    other = chain(s, 2, first=500)
    longer = [*tokens, *range(900, 900 + page_size)]
    s.put(longer, start=PAGES)
    assert kept_when_another_leaves(s, longer, other) == window_and_cushion(
        PAGES + 1, page_size, window
    )


@each_window
def test_report_match_refreshes_its_window_and_the_cushion(
    name: str, page_size: int, window: int
) -> None:
    """A match makes its window recent and one page more, and no other page."""
    config = CacheConfig(page_size=page_size, window_tokens=window, device_slots=POOLS)
    s = judged(name, config)
    tokens = chain(s, PAGES)
    other = chain(s, 2, first=500)
    assert s.hit(tokens) == PAGES
    assert kept_when_another_leaves(s, tokens, other) == window_and_cushion(
        PAGES, page_size, window
    )


def test_report_match_in_the_middle_refreshes_the_window_of_its_end(name: str) -> None:
    """A match of a prefix makes the window at the prefix's end recent."""
    s = judged(name, CacheConfig(window_tokens=2, device_slots=POOLS))
    tokens = chain(s, PAGES)
    other = chain(s, 2, first=500)
    assert s.hit(tokens[:4]) == 4
    # The last page is a leaf, which is evicted whole.
    assert kept_when_another_leaves(s, tokens, other) == ".###..."


@pytest.mark.parametrize(("length", "recent"), [(1, 3), (2, 4), (3, 3), (4, 4)])
def test_report_cushion_ends_with_the_node_that_reaches_it(
    name: str, length: int, recent: int
) -> None:
    """A use makes nodes recent up to the one that completes the window and one page more.

    The window has two pages. Leaves of one page are not cut: three nodes are recent. Of leaves of
    two pages, two are. Leaves of three and four pages are cut where their window begins, into 1 + 2
    and 2 + 2.
    """
    s = judged(name, CacheConfig(window_tokens=2, device_slots=POOLS))
    tokens = list(range(1, 1 + 4 * length))
    for end in range(length, len(tokens) + 1, length):
        s.put(tokens[:end], start=end - length)
    other = chain(s, 2, first=500)
    assert s.hit(tokens) == len(tokens)
    expected = "." * (len(tokens) - recent) + "#" * recent
    assert kept_when_another_leaves(s, tokens, other) == expected


def test_report_old_ancestors_leave_before_newer_windows(name: str) -> None:
    """Window data that no match can reach is evicted before that of a newer prompt."""
    s = judged(name, CacheConfig(window_tokens=2, device_slots=POOLS))
    tokens = chain(s, PAGES)
    other = chain(s, 2, first=500)
    for _ in range(3):
        assert s.hit(tokens) == PAGES
    signs = []
    for _ in range(PAGES - 3):
        s.evict(swa=1)
        signs.append(s.see(tokens, SWA))
    assert signs == [".######", "..#####", "...####", "....###"]
    assert s.see(other, SWA) == "##"
    assert s.hit(tokens) == PAGES


def test_report_old_ancestors_leave_first_for_a_load(name: str) -> None:
    """A load that lacks window slots evicts the window data that no match can reach."""
    config = CacheConfig(
        window_tokens=2,
        device_slots=Counts(full=40, swa=24),
        host_slots=POOLS,
        write_policy="write_through",
    )
    s = judged(name, config)
    loaded = [700, 701]
    s.put(loaded)
    s.play("flush; evict full=2")
    tokens = chain(s, PAGES)
    other = chain(s, 2, first=500)
    s.cache.flush()
    assert s.hit(tokens) == PAGES
    free = Counts(swa=len(s.cache.free_slots(SWA, GPU)))
    s.cache.allocate(Counts(full=free.swa, swa=free.swa))
    answer = s.load(loaded)
    assert (answer.decision, answer.evicted) == (LoadDecision.ENQUEUED, Counts(swa=2))
    assert s.see(tokens, SWA) == "..#####"
    assert s.see(other, SWA) == "##"


@pytest.mark.parametrize("use", ["match", "insert"])
def test_report_full_data_of_the_whole_path_stays_recent(name: str, use: str) -> None:
    """A match or an insert makes the full data of its whole path recent."""
    s = judged(name, CacheConfig(window_tokens=2, device_slots=POOLS))
    tokens = chain(s, PAGES)
    other = chain(s, 2, first=500)
    if use == "match":
        s.hit(tokens)
    else:
        s.put([*tokens, 900], start=PAGES)
    s.evict(full=2)
    assert s.see(other, FULL) == ".."
    assert s.see(tokens, FULL) == "#" * PAGES


def test_report_ancestor_without_window_data_is_passed_over(name: str) -> None:
    """A tombstone counts for the window but has no place in the LRU order."""
    s = judged(name, CacheConfig(window_tokens=4, device_slots=POOLS))
    tokens = list(range(1, 7))
    for length, window in ((2, 2), (4, 0), (6, 2)):
        s.put(tokens[:length], start=length - 2, window=window)
    other = chain(s, 2, first=500)
    assert s.see(tokens, SWA) == "##..##"
    s.put([*tokens, 7], start=6)
    # Window and cushion are the last five pages: the tombstone counts for two, and what is above
    # it is old.
    assert kept_when_another_leaves(s, [*tokens, 7], other) == "....###"


@pytest.mark.parametrize(
    ("name", "left"), [("states_on_the_path", "###."), *((name, ".###") for name in BOTH_CACHES)]
)
def test_report_states_of_the_path_are_refreshed_by_profile(name: str, left: str) -> None:
    """A match makes the mamba state at its end recent, or, by profile, all those on its path.

    The report makes the states of all ancestors recent; the canon only that at the end.
    """
    config = CacheConfig(mamba=True, device_slots=Counts(full=24, mamba=8))
    s = judged(name, config)
    tokens = chain(s, 3)
    other = [500]
    s.put(other)
    assert s.hit(tokens) == 3
    s.evict(mamba=1)
    assert s.see(tokens, MAMBA) + s.see(other, MAMBA) == left
