"""Keys as vLLM's requests.

vLLM separates prompts by `cache_salt` and by the LoRA adapter's name. It has no field for an
application's key, so that key goes into the salt.

vLLM treats an empty salt as no salt, and its server refuses it. A namespace with an empty salt is
encoded like one with an application's key, so that the judge sends only what a client can send.
"""

from __future__ import annotations

from functools import cache
from zlib import crc32

from kvcanon.conformance.adapter_parts.token_slots import tokens_of
from kvcanon.conformance.engines.installed_names import EngineObject
from kvcanon.conformance.engines.vllm.factory import NAMES
from kvcanon.spec.hashing import decode_namespace, encode_namespace
from kvcanon.spec.types import Key, Namespace

_ENCODED = ("\0", "\1")
"""The prefix of encoded salts."""


def make_request(request_id: int, key: Key, page_size: int) -> EngineObject:
    """Make a request with a key as its prompt and no computed tokens."""
    return NAMES["Request"](
        request_id=str(request_id),
        prompt_token_ids=tokens_of(key),
        sampling_params=_any_sampling(),
        pooling_params=None,
        lora_request=_adapter(key.namespace.lora),
        cache_salt=salt_of(key.namespace),
        block_hasher=_hasher(page_size),
    )


def salt_of(namespace: Namespace) -> str | None:
    """Encode a namespace, except its LoRA adapter, as a salt."""
    salt = namespace.cache_salt
    if namespace.extra_key is None and salt is None:
        return None
    if namespace.extra_key is None and salt and not salt.startswith(_ENCODED):
        return salt
    return encode_namespace(Namespace(namespace.extra_key, salt)).decode("latin-1")


def namespace_of(salt: str | None, lora: str | None) -> Namespace:
    """Decode the namespace of a salt and a LoRA adapter's name."""
    if salt is None or not salt.startswith(_ENCODED):
        return Namespace(cache_salt=salt, lora=lora)
    rest = decode_namespace(salt.encode("latin-1"))
    return Namespace(rest.extra_key, rest.cache_salt, lora)


@cache
def _any_sampling() -> EngineObject:
    return NAMES["SamplingParams"](max_tokens=1)


@cache
def _adapter(name: str | None) -> EngineObject | None:
    if name is None:
        return None
    # vLLM needs a different number above 0 for each adapter.
    number = crc32(name.encode(errors="surrogatepass")) or 1
    return NAMES["LoRARequest"](name, number, f"/{name}")


@cache
def _hasher(page_size: int) -> EngineObject:
    """The function that computes the block hashes of requests."""
    function = NAMES["sha256"]
    # The hash before the first block is set once per process.
    NAMES["init_none_hash"](function)
    return NAMES["get_request_block_hasher"](page_size, function)
