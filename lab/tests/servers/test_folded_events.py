"""KV events fold to the pages that are cached, and what is wrong with them is said."""

from kvcanon.lab.servers.folded_events import FoldedEvents, WireEvent
from kvcanon.spec.hashing import page_hashes, wire_id
from kvcanon.spec.types import CPU, GPU

TOKENS = tuple(range(20, 32))
HASHES = [
    wire_id(each) for each in page_hashes(b"", [TOKENS[at : at + 4] for at in range(0, 12, 4)])
]


def stored(hashes: list[int], medium: str = GPU) -> WireEvent:
    """A store event."""
    tokens = [0] * (4 * len(hashes))
    return {"type": "BlockStored", "block_hashes": hashes, "token_ids": tokens, "medium": medium}


def removed(hashes: list[int], medium: str = GPU) -> WireEvent:
    """A removal event."""
    return {"type": "BlockRemoved", "block_hashes": hashes, "medium": medium}


def folded(*batches: list[WireEvent]) -> FoldedEvents:
    """Fold batches of four-token pages."""
    made = FoldedEvents(4)
    for number, batch in enumerate(batches):
        made.fold(number, batch)
    return made


def test_stores_and_removals_leave_the_cached_pages() -> None:
    """A page is where it was stored last and not removed since."""
    made = folded([stored(HASHES), stored(HASHES[:2], CPU)], [removed(HASHES[1:])])
    assert (made.resident(), made.removed, made.faults) == ((1, 2), 2, [])
    assert made.overlap(TOKENS) == (1, 2)
    assert made.overlap(TOKENS[:7]) == (1, 1)


def test_clear_empties_every_medium() -> None:
    """After a flush nothing is cached."""
    made = folded([stored(HASHES), stored(HASHES, CPU)], [{"type": "AllBlocksCleared"}])
    assert (made.resident(), made.faults) == ((0, 0), [])


def test_page_that_was_stored_twice_is_removed_at_once() -> None:
    """Pages are a set, as a router keeps them."""
    made = folded([stored(HASHES[:1]), stored(HASHES[:1])], [removed(HASHES[:1])])
    assert (made.overlap(TOKENS), made.faults) == ((0, 0), [])


def test_pages_of_namespaces_may_share_a_hash_until_a_flush() -> None:
    """SGLang's hashes leave out `extra_key`, so the second removal of a hash is no fault there."""
    made = folded([stored(HASHES[:1])])
    made.mixed = True
    made.fold(1, [removed(HASHES[:1]), removed(HASHES[:1])])
    assert made.faults == []
    made.fold(2, [{"type": "AllBlocksCleared"}, removed(HASHES[:1])])
    assert made.faults == ["BlockRemoved of 1 pages that are not on GPU"]


def test_removal_of_an_absent_page_is_a_fault() -> None:
    """A page that was not stored on a medium cannot be removed from it."""
    made = folded([stored(HASHES[:1], CPU), removed(HASHES)])
    assert made.faults == ["BlockRemoved of 3 pages that are not on GPU"]


def test_lost_batch_unknown_medium_and_short_tokens_are_faults() -> None:
    """A gap in the sequence, a medium that nobody knows, and tokens that fill no page are said."""
    made = folded([])
    made.fold(2, [stored([5], "TAPE"), {**stored([5]), "token_ids": [1]}])
    assert made.faults == [
        "batch 2 came where 1 was due",
        "BlockStored names the medium 'TAPE'",
        "BlockStored has 1 tokens for 1 pages",
    ]
