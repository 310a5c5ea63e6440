"""Keys as SGLang's RadixKey, and back.

SGLang has one `extra_key` per request, in which its requests join the cache salt, the application's
key and the LoRA adapter's name. Here each namespace is encoded as a different `extra_key`; whether
SGLang's requests do so is not judged.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from attrs import frozen

from kvcanon.conformance.adapter_parts.token_slots import extra_key_of, tokens_of
from kvcanon.conformance.engines.installed_names import EngineObject
from kvcanon.conformance.engines.sglang.release import named
from kvcanon.spec.types import Key, Page


@frozen
class Keys:
    """Converts keys for one cache."""

    page_size: int
    typecode: str | None
    """The type code of token arrays; None if the cache takes lists."""

    def radix_key(self, key: Key) -> EngineObject:
        """Convert a key to SGLang's."""
        tokens = tokens_of(key)
        return named("RadixKey")(
            tokens if self.typecode is None else array(self.typecode, tokens),
            extra_key_of(key.namespace),
        )

    def pages(self, key: EngineObject) -> tuple[Page, ...]:
        """The pages of an SGLang key; left-over tokens make a short last page."""
        tokens, size = list(key.token_ids), self.page_size
        return tuple([tuple(tokens[at : at + size]) for at in range(0, len(tokens), size)])


@frozen
class NodeKey:
    """The tokens of a node that is made here, in the form of SGLang's keys."""

    token_ids: array[int]
    extra_key: str | None = None
    is_bigram: bool = False

    def __len__(self) -> int:
        return len(self.token_ids)


def keys_of(page_size: int, root_tokens: Sequence[int]) -> Keys:
    """Find the token container of a cache from the empty tokens of its root."""
    return Keys(page_size, root_tokens.typecode if isinstance(root_tokens, array) else None)
