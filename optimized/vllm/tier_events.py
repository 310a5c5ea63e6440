"""What is stored on the host and removed from it, with the names of vLLM's events."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import field, frozen

from kvcanon.optimized.vllm.disk_names import PromptNames
from kvcanon.optimized.vllm.engine_calls import VllmRequest

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
TakenEvent = tuple[bool, bytes, int, object, int]
"""As `HashedPages.take_events` answers it."""


@frozen(eq=False)
class EventPrompt:
    """What the events of its pages say of a prompt, and the disk's names for them."""

    block_tokens: int
    hashes: Sequence[bytes]
    token_ids: Sequence[int]
    lora_id: int | None
    lora_name: str | None
    salt: str | None = field(repr=False)
    names: PromptNames | None = None
    """None where its pages are kept off the disk."""


def event_prompt(
    request: VllmRequest, block_tokens: int, names: PromptNames | None = None
) -> EventPrompt:
    """What events say of a request. Its tokens and hashes grow with it, and are not copied."""
    lora = request.lora_request
    return EventPrompt(
        block_tokens,
        request.block_hashes,
        request.all_token_ids,
        None if lora is None else lora.lora_int_id,
        None if lora is None else lora.lora_name,
        request.cache_salt,
        names,
    )


def event_of(taken: TakenEvent) -> TierEvent:
    """The event of a page that came to the host or left it."""
    came, block_hash, group, prompt, at = taken
    if not came or not isinstance(prompt, EventPrompt):
        return PagesRemoved((block_hash,), group)
    size = prompt.block_tokens
    return PagesStored(
        (block_hash,),
        prompt.hashes[at - 1] if at else None,
        tuple(prompt.token_ids[at * size : (at + 1) * size]),
        size,
        group,
        prompt.lora_id,
        prompt.lora_name,
        prompt.salt,
    )
