"""The sizes of an engine: blocks, groups of layers, ranks, and what a step may compute."""

from __future__ import annotations

from enum import Enum

from attrs import frozen


class Queueing(Enum):
    """Which waiting requests a step looks at first."""

    HOLDERS_FIRST = "holders first"
    """Those that hold blocks, as an async load does: vLLM 0.32 and 0.33."""
    SKIPPED_FIRST = "skipped first"
    """All that an earlier step had to skip, in one queue, of which the head may block the rest: the
    scheduler that vllm#57841 reports a deadlock of."""


@frozen
class CachedLayers:
    """The layers that share block tables."""

    layers: tuple[str, ...]
    window_tokens: int | None = None
    """How many tokens a token sees, itself included, as vLLM counts; None for all of them."""

    def skipped_blocks(self, computed_tokens: int, block_tokens: int) -> int:
        """How many leading blocks no token after the computed ones sees any more."""
        if self.window_tokens is None:
            return 0
        return max(0, computed_tokens - self.window_tokens + 1) // block_tokens

    def most_blocks(self, step_tokens: int, block_tokens: int) -> int | None:
        """The most blocks that a request holds at a time; None for all of its tokens' blocks."""
        if self.window_tokens is None:
            return None
        return -(-(self.window_tokens - 1 + step_tokens) // block_tokens) + 1

    def blocks_of_hit(self, block_tokens: int) -> int | None:
        """How many blocks before the end of a hit must be there; None for all of them."""
        if self.window_tokens is None:
            return None
        return -(-(self.window_tokens - 1) // block_tokens)


FULL_LAYERS = CachedLayers(("full.0", "full.1"))
FULL_ALONE = (FULL_LAYERS,)


@frozen
class EngineShape:
    """The sizes of an engine."""

    blocks: int
    """Blocks of the pool without the null block."""
    block_tokens: int = 4
    groups: tuple[CachedLayers, ...] = FULL_ALONE
    ranks: int = 1
    running: int = 4
    """The most requests that compute at a time."""
    step_tokens: int = 32
    """The most tokens of a step; longer prompts are computed in chunks."""
    queueing: Queueing = Queueing.HOLDERS_FIRST
    reserving: bool = True
    """Whether an async load begins only if the blocks that others still need are left: as vLLM has
    done since vllm#44560."""
