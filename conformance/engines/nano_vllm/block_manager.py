"""Translates request operations to the calls that nano-vllm's scheduler makes for them.

A request is a `Sequence`. A prompt is computed in one step, and what comes behind it token by
token, as in decoding. nano-vllm has no call that evicts, and no namespaces.

A block of one token is not offered: a decoded token gets a new block where the length of its
sequence leaves 1 when divided by the block size, which is never so for size 1. nano-vllm's
configuration allows multiples of 256 only. Nor are pools of tens of thousands of blocks, in which
one request takes as long as a thousand others, and most of a check.
"""

from __future__ import annotations

from typing import Any

from attrs import evolve

from kvcanon.conformance.adapter_parts.arguments import check_prompt, check_room
from kvcanon.conformance.adapter_parts.offers import FULL_ATTENTION
from kvcanon.conformance.adapter_parts.running_requests import RunningRequests
from kvcanon.conformance.adapter_parts.token_slots import tokens_of
from kvcanon.conformance.engines.package_version import source_module
from kvcanon.conformance.protocol.adapter import Adapter, CacheKind
from kvcanon.conformance.protocol.request import Admitted, RequestId
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import OutOfSlots
from kvcanon.spec.types import Key, Slots

ENGINE = "nano-vllm"
_BLOCKS = source_module("nanovllm.engine.block_manager", ENGINE)
_SEQUENCES = source_module("nanovllm.engine.sequence", ENGINE)


class NanoBlocks:
    """A `RequestCache` around a `BlockManager`."""

    def __init__(self, config: CacheConfig) -> None:
        self.config = config
        self.manager = _BLOCKS.BlockManager(config.device_slots.full, config.page_size)
        self.running = RunningRequests[Any]()

    def admit(self, request_id: RequestId, key: Key) -> Admitted:
        """Allocate blocks for a prompt."""
        check_prompt(key)
        # The engine has one block size, which its sequences have as a class.
        _SEQUENCES.Sequence.block_size = self.config.page_size
        sequence = _SEQUENCES.Sequence(tokens_of(key))
        reused = self.manager.can_allocate(sequence)
        if reused < 0:
            raise OutOfSlots("blocks", len(key), len(self.manager.free_block_ids))
        self.running.start(request_id, sequence)
        self.manager.allocate(sequence, reused)
        self._compute(sequence, len(sequence) - sequence.num_cached_tokens)
        return Admitted(reused, Slots(tuple(sequence.block_table)))

    def extend(self, request_id: RequestId, key: Key) -> Slots:
        """Append tokens, and blocks for them."""
        sequence = self.running.get(request_id)
        pages = len(key) - len(sequence.block_table)
        check_room("blocks", pages, len(self.manager.free_block_ids))
        for token in tokens_of(key)[len(sequence) :]:
            sequence.append_token(token)
            self.manager.may_append(sequence)
            self._compute(sequence, 1)
        return Slots(tuple(sequence.block_table))

    def finish(self, request_id: RequestId) -> None:
        """Free the blocks of a sequence."""
        self.manager.deallocate(self.running.end(request_id))

    abort = finish

    def _compute(self, sequence: Any, tokens: int) -> None:  # noqa: ANN401 # nano-vllm's.
        """Make the calls of a step of the model."""
        sequence.num_scheduled_tokens = tokens
        self.manager.hash_blocks(sequence)
        sequence.num_cached_tokens += tokens


OFFER = evolve(FULL_ATTENTION, page_sizes=(2, 4, 6, 16, 64), namespaces=False, most_slots=1_500)
NANO = Adapter("nano-vllm", NanoBlocks, OFFER, kind=CacheKind.REQUEST)
