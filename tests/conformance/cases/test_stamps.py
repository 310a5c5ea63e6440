"""Stamps are a page's own bytes, so that wrong bytes in a slot are found."""

from attrs import evolve

from kvcanon.conformance.cases.stamps import stamp, write_stamps
from kvcanon.conformance.protocol.adapter import subject_of
from kvcanon.conformance.replay.replay import replay
from kvcanon.conformance.replay.workloads.chat import Chat
from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.types import (
    FULL,
    GPU,
    MAMBA,
    SWA,
    Component,
    Counts,
    Key,
    Medium,
    Namespace,
    Slot,
    WritePolicy,
    make_key,
)

CONFIG = CacheConfig(
    page_size=4,
    window_tokens=8,
    mamba=True,
    device_slots=Counts(full=128, swa=64, mamba=4),
    host_slots=Counts(full=256, swa=128, mamba=8),
    write_policy=WritePolicy.WRITE_THROUGH,
)
REQUESTS = Chat(
    conversations=6, system_tokens=40, message_tokens=(2, 20), answer_tokens=(2, 20)
).requests()


class Amnesiac(ReferenceCache):
    """Reads zeros instead of what was written."""

    def read(self, component: Component, medium: Medium, slot: Slot) -> bytes:
        return bytes(len(super().read(component, medium, slot)))


def stamps_of(key: Key) -> set[bytes]:
    """Return the stamps of all data that a key may have."""
    names = page_hashes(namespace_seed(key.namespace), key.pages)
    return {stamp(component, name, 8) for component in Component for name in names}


def test_stamp_is_of_component_page_and_all_before_it() -> None:
    """Every page and component has a stamp of its own."""
    tokens = range(12)
    key = make_key(tokens, 4)
    assert len(stamps_of(key)) == 9
    same_pages_elsewhere = make_key([*range(50, 54), *tokens], 4)
    same_tokens_elsewhere = make_key(tokens, 4, Namespace(extra_key="other"))
    for other in (same_pages_elsewhere, same_tokens_elsewhere):
        assert not stamps_of(key) & stamps_of(other)


def test_stamps_go_to_the_last_pages() -> None:
    """Window stamps are written for the last pages, which have slots."""
    cache = ReferenceCache(CONFIG)
    key = make_key(range(20), 4)
    slots = cache.allocate(Counts(full=3, swa=2, mamba=1))
    write_stamps(cache, key, slots)
    names = page_hashes(namespace_seed(key.namespace), key.pages)
    assert [cache.read(FULL, GPU, slot) for slot in slots.full] == [
        stamp(FULL, name, 8) for name in names[2:]
    ]
    assert [cache.read(SWA, GPU, slot) for slot in slots.swa] == [
        stamp(SWA, name, 8) for name in names[3:]
    ]
    assert cache.read(MAMBA, GPU, slots.mamba[0]) == stamp(MAMBA, names[4], 8)


def test_guarded_replay_sees_wrong_bytes() -> None:
    """A cache that reads other bytes than were written is reported."""
    judgement = replay(subject_of(Amnesiac(CONFIG)), REQUESTS, guard_rate=1.0).judgement
    assert judgement is not None
    assert any(law_id.startswith("DATA-") for law_id in judgement.broken)
    assert "Match(" in judgement.words


def test_guarded_replay_asks_of_bytes_of_any_size() -> None:
    """Stamps fit slots that are smaller or larger than a hash."""
    for size in (1, 100):
        cache = ReferenceCache(evolve(CONFIG, slot_bytes=size))
        judgement = replay(subject_of(cache), REQUESTS, guard_rate=1.0).judgement
        assert judgement is not None
        assert not judgement.broken
        assert judgement.laws["DATA-1"] > 0
