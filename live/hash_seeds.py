"""Seeds: what the hash chain of a namespace may begin with, by the engine that sends it.

Source of SGLang's: `cache_salt` in `sglang.srt.mem_cache.utils` (0.5.23), a tag and the salt.
"""

from __future__ import annotations

import hashlib

import msgspec

from kvcanon.spec.hashing import namespace_seed
from kvcanon.spec.types import Namespace

SGLANG_SALT_TAG = b"sglang-cache-salt-v1\0"


def seeds_of(
    salt: bytes | None, lora: bytes | None, extra_key: bytes | None, extra: bytes
) -> list[bytes]:
    """The seeds of a namespace, the likeliest first; none for the default namespace.

    `extra` are vLLM's extra keys of the first block, as MessagePack: if they are one text beside
    the name of the LoRA, it is the salt. Raises nothing, whatever the bytes.
    """
    if salt is None and extra:
        salt = _salt_among(extra, lora)
    try:
        namespace = Namespace(_text(extra_key), _text(salt), _text(lora))
    except UnicodeDecodeError:
        return []  # Nobody can have computed a hash from it.
    if namespace == Namespace():
        return []
    seeds = [namespace_seed(namespace)]
    if salt is not None:
        seeds.append(hashlib.sha256(SGLANG_SALT_TAG + salt).digest())
    return seeds


def _text(field: bytes | None) -> str | None:
    return None if field is None else field.decode(errors="surrogatepass")


def _salt_among(extra: bytes, lora: bytes | None) -> bytes | None:
    try:
        keys = msgspec.msgpack.decode(extra, type=list[str])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if lora is not None and keys[:1] == [lora.decode(errors="replace")]:
        keys = keys[1:]
    return keys[0].encode(errors="surrogatepass") if len(keys) == 1 else None
