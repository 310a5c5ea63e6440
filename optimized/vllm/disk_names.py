"""The names of a prompt's pages on a disk: chains of SHA-256 over salt and tokens.

vLLM's hashes begin with a number that each process draws, so that no other finds pages by them.
These names are those of `kvcanon.spec.hashing`, and the same in every process.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from attrs import Factory, define

from kvcanon.optimized import _core
from kvcanon.spec.hashing import namespace_seed
from kvcanon.spec.types import Namespace


@define(eq=False)
class PromptNames:
    """The names of one prompt's pages, as far as anybody asked for them."""

    block_tokens: int
    hashes: Sequence[bytes]
    """VLLM's, of all whole blocks; they grow with the prompt."""
    token_ids: Sequence[int]
    seed: bytes
    _names: list[bytes] = Factory(list)
    _named_hashes: list[bytes] = Factory(list)
    """The hash that each block had when it was named."""

    def up_to(self, end: int) -> Sequence[bytes]:
        """The names of at least the first `end` blocks, all of which have hashes."""
        self._forget_changed()
        first, size = len(self._names), self.block_tokens
        if first < end:
            tokens = np.array(list(self.token_ids[first * size : end * size]), np.uint32)
            parent = self._names[-1] if first else self.seed
            self._names += [each.tobytes() for each in _core.page_hashes(parent, tokens, size)]
            self._named_hashes += self.hashes[first:end]
        return self._names

    def end(self) -> None:
        """Name all whole blocks, and let go of the prompt, which has ended."""
        self.up_to(len(self.hashes))
        self.hashes, self.token_ids = self._named_hashes, ()

    def _forget_changed(self) -> None:
        """Forget names of blocks with other tokens now: an open session replaces its last ones."""
        while self._named_hashes and (
            len(self.hashes) < len(self._named_hashes)
            or self.hashes[len(self._named_hashes) - 1] != self._named_hashes[-1]
        ):
            self._named_hashes.pop()
            self._names.pop()


def seed_of(salt: str | None, epoch: str | None) -> bytes:
    """What the chain of a prompt begins with: 0 or 32 bytes.

    After a reset of the cache `epoch` is a text that no process has ever had, so that pages of
    before have other names.
    """
    return namespace_seed(Namespace(extra_key=epoch, cache_salt=salt))
