"""What a stream promises for a prompt: its leading pages that are cached, by tier.

Engines compute hashes in ways of their own, so pages are found as they were announced: by their
parent, their tokens, and where there is no parent, the namespace. Where they are is what the ledger
holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from attrs import field, frozen

from kvcanon.live.decode import SentEvent, UnreadableBatch, decode_batch, key_of
from kvcanon.live.dialects import MEDIA
from kvcanon.live.follower import Follower

MOST_ANNOUNCED = 1 << 19
"""Announced pages that are remembered, the latest; a prompt of older ones is not found."""

_TIERS = {"GPU": "device", "CPU_PINNED": "host"}
_STORAGE = "storage"
_DEVICE_BIT = 1 << MEDIA.index("GPU")

_Announced: TypeAlias = tuple[int | None, str, str, tuple[int, ...]]
"""A page as it was announced: its parent, or its salt and LoRA, and its tokens."""


@frozen
class Overlap:
    """The leading tokens of a prompt that are cached, by a stream."""

    device: int
    """Tokens of whole pages on the device, up to the first that is not."""
    anywhere: int
    """The same on any tier."""
    by_tier: Mapping[str, int]
    """Of `anywhere`, each page on the nearest tier that it is on."""


@frozen
class AnnouncedPages:
    """The pages that one publisher announced, and the ledger that says where they are."""

    follower: Follower
    _keys: dict[_Announced, int] = field(factory=dict)
    _sizes: dict[int, int] = field(factory=dict)
    """Tokens of a page, by the rank."""
    _groups: set[int] = field(factory=set)
    """The groups of layers that events name."""

    def note(self, payload: bytes) -> None:
        """Remember the pages of a batch; one that cannot be read is left to the follower."""
        try:
            batch = decode_batch(payload)
        except UnreadableBatch:
            return
        for event in batch.events:
            if event.kind == "BlockStored":
                self._groups.add(event.group)
                self._note_stored(batch.rank, event)

    def overlap(self, tokens: Sequence[int], salt: str = "", lora: str = "") -> Overlap | None:
        """What is promised for a prompt; None where there are several ranks, or groups of layers.

        The last token is left out: an engine always computes it.
        """
        if len(self._sizes) > 1 or len(self._groups) > 1:
            return None
        group = next(iter(self._groups), 0)
        for rank, size in self._sizes.items():
            media = list(self._media((rank, group), size, tokens[:-1], salt, lora))
            on_device = next(
                (at for at, bits in enumerate(media) if not bits & _DEVICE_BIT), len(media)
            )
            by_tier: dict[str, int] = {}
            for bits in media:
                tier = _nearest(bits)
                by_tier[tier] = by_tier.get(tier, 0) + size
            return Overlap(on_device * size, len(media) * size, by_tier)
        return Overlap(0, 0, {})

    def _note_stored(self, rank: int, event: SentEvent) -> None:
        fields = event.fields
        hashes, tokens = event.hashes, list(fields.get("token_ids") or ())
        size = int(fields.get("block_size") or 0)
        if not size or len(tokens) != size * len(hashes):
            return
        self._sizes[rank] = size
        sent = fields.get("parent_block_hash")
        parent = None if sent is None else key_of(sent)
        salt, lora = _namespace(fields)
        for at, each in enumerate(hashes):
            page = tuple(tokens[at * size : (at + 1) * size])
            named = ("", "") if parent is not None else (salt, lora)
            parent_key = parent
            parent = key_of(each)
            # A page that is announced again moves to the end.
            self._keys.pop((parent_key, *named, page), None)
            self._keys[parent_key, *named, page] = parent
        while len(self._keys) > MOST_ANNOUNCED:
            del self._keys[next(iter(self._keys))]

    def _media(
        self, book: tuple[int, int], size: int, tokens: Sequence[int], salt: str, lora: str
    ) -> Iterator[int]:
        """The media of each leading page, as bits, up to the first page that is on none."""
        parent: int | None = None
        for at in range(0, len(tokens) - size + 1, size):
            named = (salt, lora) if parent is None else ("", "")
            parent = self._keys.get((parent, *named, tuple(tokens[at : at + size])))
            held = None if parent is None else self.follower.ledger.find(*book, parent)
            if held is None or not held[0]:
                return
            yield held[0]


def _nearest(bits: int) -> str:
    """The nearest tier of a page."""
    for number, medium in enumerate(MEDIA):
        if bits & (1 << number):
            return _TIERS.get(medium, _STORAGE)
    return _STORAGE


def _namespace(fields: Mapping[str, object]) -> tuple[str, str]:
    """Salt and LoRA of an event; vLLM has the salt among the extra keys of the first block."""
    lora = str(fields.get("lora_name") or "")
    salt = fields.get("cache_salt")
    if isinstance(salt, str) and salt:
        return salt, lora
    extra = fields.get("extra_keys")
    first = extra[0] if isinstance(extra, Sequence) and extra else None
    texts = [each for each in first or () if isinstance(each, str)]
    if lora and texts[:1] == [lora]:
        texts = texts[1:]
    return (texts[0] if len(texts) == 1 else ""), lora
