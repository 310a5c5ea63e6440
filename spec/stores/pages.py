"""Names of pages in a store, and the identity that a store is opened with.

A page in a store has a name that two processes compute alike, today and after a restart. It has to
say everything on which the bytes depend: what the tokens do not say is in the identity, or in the
namespace. `page_digest` and `identity_digest` are names that do, for stores that take any name.
"""

from __future__ import annotations

import hashlib

from attrs import asdict, frozen

from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.oracle.framing import frame
from kvcanon.spec.types import Namespace


@frozen(cache_hash=True)
class StoreIdentity:
    """What the bytes of all pages of an open store depend on, besides their tokens."""

    model: str = "model"
    """The name or path of the model. Two checkpoints may have one path."""
    weights: str = "weights-1"
    """Which weights: a revision, or a hash of the files."""
    config: str = "rope-1"
    """What of the model's configuration changes keys and values at equal shapes: RoPE scaling."""
    kv_dtype: str = "float16"
    layout: str = "layer_first"
    """The order of layers, heads and tokens in a page."""
    page_size: int = 4
    """Tokens in a page."""
    rank: int = 0
    ranks: int = 1
    """Tensor-parallel rank, and how many there are: the heads of rank 1 of 2 are not those of rank
    1 of 4."""
    pools: tuple[str, ...] = ("kv",)
    """The pools that each page has: keys and values, perhaps the index of sparse attention."""


@frozen(cache_hash=True)
class PageKey:
    """The name of one page in one pool of a store."""

    tokens: tuple[int, ...]
    """All tokens of the prompt up to the end of the page: the page's own are the last."""
    namespace: Namespace = Namespace()
    """Whose page it is: extra key, salt and LoRA."""
    pool: str = "kv"
    """Which of the page's pools, as the keys and values or the index of sparse attention."""


def page_digest(key: PageKey, page_size: int) -> bytes:
    """A name of 32 bytes that is injective over tokens, namespace and pool, and never changes."""
    pages = [key.tokens[at : at + page_size] for at in range(0, len(key.tokens), page_size)]
    chain = page_hashes(namespace_seed(key.namespace), pages)[-1]
    return hashlib.sha256(chain + key.pool.encode()).digest()


def identity_digest(identity: StoreIdentity) -> bytes:
    """A name of 32 bytes of an identity, which differs if any of its fields does."""
    fields = asdict(identity)
    framed = b"".join(frame(f"{name}={fields[name]!r}".encode()) for name in sorted(fields))
    return hashlib.sha256(framed).digest()


def parent_of(key: PageKey, page_size: int) -> PageKey | None:
    """The page before a page, in the same pool; None for the first."""
    tokens = key.tokens[:-page_size]
    return PageKey(tokens, key.namespace, key.pool) if tokens else None
