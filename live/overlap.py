"""What a stream promises for a prompt: its leading pages that are cached, by tier."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from attrs import frozen

from kvcanon.live.dialects import MEDIA
from kvcanon.live.follower import Follower
from kvcanon.live.hash_seeds import seeds_of

_TIERS = {"GPU": "device", "CPU_PINNED": "host"}
_STORAGE = "storage"
_DEVICE_BIT = 1 << MEDIA.index("GPU")


@frozen
class Overlap:
    """The leading tokens of a prompt that are cached, by a stream."""

    device: int
    """Tokens of whole pages on the device, up to the first that is not."""
    anywhere: int
    """The same on any tier."""
    by_tier: Mapping[str, int]
    """Of `anywhere`, each page on the nearest tier that it is on."""


def overlap(
    follower: Follower, tokens: Sequence[int], salt: str = "", lora: str = ""
) -> Overlap | None:
    """What is promised for a prompt; None where there are several ranks, or groups of layers.

    The last token is left out: an engine always computes it. The follower must have been made with
    `finding_prompts`.
    """
    books = [book for book in follower.books() if any(book.counts["stored"])]
    if len(books) > 1:
        return None
    if not books:
        return Overlap(0, 0, {})
    (book,) = books
    size = book.counts["block_size"]
    seeds = seeds_of(salt.encode() or None, lora.encode() or None, None, b"")
    seed = seeds[0] if seeds else b""
    media = follower.ledger.media_of(book.rank, book.group, seed, tokens[:-1])
    on_device = next((at for at, bits in enumerate(media) if not bits & _DEVICE_BIT), len(media))
    pages = Counter(_nearest(bits) for bits in media)
    by_tier = {tier: count * size for tier, count in pages.items()}
    return Overlap(on_device * size, len(media) * size, by_tier)


def _nearest(bits: int) -> str:
    """The nearest tier of a page that is on some media."""
    nearest = (bits & -bits).bit_length() - 1
    return _TIERS.get(MEDIA[nearest], _STORAGE)
