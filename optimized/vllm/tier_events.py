"""What is stored on the host and removed from it, with the names of vLLM's events."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from kvcanon.optimized.vllm.pages import Page

HOST_MEDIUM = "CPU"


@frozen
class PagesStored:
    """Pages came to the host. Their bytes are there, on all ranks."""

    block_hashes: Sequence[bytes]
    parent_block_hash: bytes | None
    token_ids: Sequence[int]
    block_size: int
    group_idx: int
    lora_id: int | None
    lora_name: str | None
    salt: str | None
    medium: str = HOST_MEDIUM


@frozen
class PagesRemoved:
    """Pages left the host."""

    block_hashes: Sequence[bytes]
    group_idx: int
    medium: str = HOST_MEDIUM


TierEvent = PagesStored | PagesRemoved


def stored_event(page: Page) -> PagesStored:
    """The event of a page that came."""
    return PagesStored(
        (page.block_hash,),
        page.parent_hash,
        page.token_ids,
        len(page.token_ids),
        page.group,
        page.lora_id,
        page.lora_name,
        page.salt,
    )


def removed_event(page: Page) -> PagesRemoved:
    """The event of a page that left."""
    return PagesRemoved((page.block_hash,), page.group)
