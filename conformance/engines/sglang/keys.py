"""Keys as SGLang's RadixKey, and back.

SGLang has one `extra_key` a request, and its requests join the cache salt, the application's key
and the adapter's name in it. Here these are encoded so that no two namespaces have one `extra_key`;
whether SGLang's requests do so is not judged.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import cast

from attrs import frozen

from kvcanon.conformance.engines.sglang.peer_types import RadixKey
from kvcanon.conformance.engines.sglang.release import named
from kvcanon.spec.hashing import decode_namespace, encode_namespace
from kvcanon.spec.types import DEFAULT_NAMESPACE, Key, Namespace, Page


@frozen
class Keys:
    """How one cache has its keys."""

    page_size: int
    typecode: str | None
    """Of the arrays that tokens come in; None where they come in lists."""

    def radix_key(self, key: Key) -> RadixKey:
        """A key as SGLang takes it."""
        tokens = [cast("int", token) for page in key.pages for token in page]
        made: RadixKey = named("RadixKey")(
            tokens if self.typecode is None else array(self.typecode, tokens),
            extra_key_of(key.namespace),
        )
        return made

    def pages(self, key: RadixKey) -> tuple[Page, ...]:
        """The pages of a key of SGLang's; what is left over makes a page that is too short."""
        tokens, size = list(key.token_ids), self.page_size
        return tuple([tuple(tokens[at : at + size]) for at in range(0, len(tokens), size)])


def keys_of(page_size: int, root_tokens: Sequence[int]) -> Keys:
    """How a cache has its keys, by the tokens that its root has: none, but in some container."""
    return Keys(page_size, root_tokens.typecode if isinstance(root_tokens, array) else None)


def extra_key_of(namespace: Namespace) -> str | None:
    """A namespace as the one text that tells it from all others."""
    if namespace == DEFAULT_NAMESPACE:
        return None
    return encode_namespace(namespace).decode("latin-1")


def namespace_of(extra_key: str | None) -> Namespace:
    """The namespace that such a text stands for."""
    if extra_key is None:
        return DEFAULT_NAMESPACE
    return decode_namespace(extra_key.encode("latin-1"))
