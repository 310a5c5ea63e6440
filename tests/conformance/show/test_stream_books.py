"""The tree that is drawn of a stream has what the ledger holds that judges it."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import msgspec
import pytest

from kvcanon.conformance.show.event_rows import DEVICE, HOST, EventRows
from kvcanon.conformance.show.stream_run import StreamBooks
from kvcanon.live.dialects import MEDIA
from kvcanon.live.follower import Streams
from kvcanon.live.frames import Frame
from kvcanon.spec.types import CPU, GPU, Medium
from sent_events import CLEARED, store

WRONG_MEDIUM = "tape"
NAMES = ("GPU", "CPU", "CPU_PINNED", "DISK", "EXTERNAL", WRONG_MEDIUM, None)


def drawn_event(random: Random) -> dict[str, Any]:
    """An event of a few prompts that share pages, sound or not."""
    if random.random() < 0.08:
        return CLEARED
    salt = random.choice([None, None, "tenant"])
    firsts = [4 * random.randrange(6) for _ in range(random.randrange(1, 5))]
    event = store(firsts, medium=random.choice(NAMES), group_idx=random.choice([0, 0, 1, None]))
    if salt is not None:
        event["cache_salt"] = salt
    if random.random() < 0.45:
        gone = random.sample(event["block_hashes"], random.randrange(1, len(firsts) + 1))
        return {
            "type": "BlockRemoved",
            "block_hashes": gone,
            "medium": event["medium"],
            # Where several groups hold a block, a remove that names none is a violation.
            "group_idx": event["group_idx"] or 0,
        }
    return event | ({"token_ids": []} if random.random() < 0.1 else {})


def held(streams: Streams) -> Counter[str]:
    """Blocks on each medium that has a name, by the ledgers."""
    counts: Counter[str] = Counter()
    for follower in streams.followers:
        for book in follower.books():
            counts.update(dict(zip(MEDIA[:-1], book.counts["blocks"], strict=False)))
    return +counts


@pytest.mark.parametrize("seed", range(30))
def test_tree_has_what_the_ledger_holds(seed: int) -> None:
    """After each batch, whatever was lost, repeated, cleared, or begun by another publisher."""
    random = Random(seed)
    books = StreamBooks(Streams(), several=True)
    rows = EventRows()
    following = [0, 0]
    for _ in range(60):
        source = random.randrange(2)
        events = [drawn_event(random) for _ in range(random.randrange(3))]
        payload = msgspec.msgpack.encode([1.0, events, random.choice([0, 0, 1])])
        number = following[source] + random.choice([0] * 17 + [3, -1, -following[source]])
        following[source] = max(number, 0) + 1
        anew = random.random() < 0.03
        frame = Frame(source, b"kv", max(number, 0), payload, 1.0, anew=anew)
        rows.move_books(books.take(frame).events)
        there = held(books.streams)
        assert +Counter({each.value: rows.blocks(each) for each in Medium}) == there
        for place, medium in ((DEVICE, GPU), (HOST, CPU)):
            drawn = [node_id for node_id, row in rows.now.rows.items() if row[place]]
            assert len(drawn) == there[medium.value]
