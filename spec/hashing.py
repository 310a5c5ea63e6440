"""Chapter 5. Page hashes: a hash chain that is injective over namespace, tokens and position.

The hash of a page is SHA-256 over the hash of the page before it and its own tokens. The first page
of a namespace follows the namespace's *seed*. Two pages therefore have the same hash only if their
namespace, every token before them and their own tokens agree, or SHA-256 is broken.

A cache compares its own pages by their tokens. Page hashes are for readers that see only events or
storage. The seed of the default namespace is empty, so that its hashes are those of SGLang's chain.
"""

from __future__ import annotations

import hashlib
import sys
from array import array
from collections.abc import Iterable
from itertools import chain
from typing import cast

from kvcanon.spec.oracle.framing import frame, unframe
from kvcanon.spec.types import Namespace, Page

NAMESPACE_TAG = b"kvcanon-namespace-v1"

_ANY_TEXT = "surrogatepass"
"""A client can send half a surrogate pair as a salt: JSON can carry it, so it is encoded, too."""

_WIRE_SPAN = 1 << 64
_WIRE_SIGN = 1 << 63


def encode_namespace(namespace: Namespace) -> bytes:
    """Encode a namespace injectively: for each field a presence byte, its length, its text.

    Without lengths ("a", "bc") and ("ab", "c") would be one namespace (sgl#24638); without presence
    bytes an empty salt would be no salt.
    """
    fields = (namespace.extra_key, namespace.cache_salt, namespace.lora)
    return b"".join([frame(_to_bytes(field)) for field in fields])


def decode_namespace(encoded: bytes) -> Namespace:
    """The inverse of `encode_namespace`; that it exists shows that the encoding is injective."""
    fields: list[str | None] = []
    while encoded:
        field, encoded = unframe(encoded)
        fields.append(None if field is None else field.decode(errors=_ANY_TEXT))
    extra_key, cache_salt, lora = fields
    return Namespace(extra_key, cache_salt, lora)


def namespace_seed(namespace: Namespace) -> bytes:
    """The parent hash of a namespace's first page: empty for the default one, else 32 bytes."""
    if namespace == Namespace():
        return b""
    return hashlib.sha256(NAMESPACE_TAG + encode_namespace(namespace)).digest()


def page_hash(parent: bytes, page: Page) -> bytes:
    """The 32-byte hash of a page; `parent` is the hash of the page before it, or the seed.

    A token is four bytes, little endian; a bigram is its two tokens.
    """
    return hashlib.sha256(parent + _encode_page(page)).digest()


def page_hashes(parent: bytes, pages: Iterable[Page]) -> tuple[bytes, ...]:
    """The hashes of consecutive pages, the first of which follows `parent`."""
    hashes: list[bytes] = []
    for page in pages:
        parent = page_hash(parent, page)
        hashes.append(parent)
    return tuple(hashes)


def wire_id(block_hash: bytes) -> int:
    """The 64-bit id that SGLang's events carry: the first eight bytes as a signed integer.

    Source: SGLang `hash_str_to_int64`. For routing only: 64 bits can collide.
    """
    unsigned = int.from_bytes(block_hash[:8], "big")
    return unsigned - _WIRE_SPAN if unsigned >= _WIRE_SIGN else unsigned


def _to_bytes(field: str | None) -> bytes | None:
    return None if field is None else field.encode(errors=_ANY_TEXT)


def _encode_page(page: Page) -> bytes:
    if page and isinstance(page[0], tuple):
        tokens = array("I", chain.from_iterable(cast("tuple[tuple[int, int], ...]", page)))
    else:
        tokens = array("I", cast("tuple[int, ...]", page))
    if sys.byteorder == "big":
        tokens.byteswap()
    return tokens.tobytes()
