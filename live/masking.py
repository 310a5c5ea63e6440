"""Masks what prompts say in recorded batches: tokens, and the names that part tenants.

Equal tokens stay equal within one recording, so that the laws of order, copies and content are
judged as before; whether hashes follow from tokens is not. The table is drawn for each recording
and forgotten with it. How often a token occurs can still be seen.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

UNREADABLE = b"\xc1"
"""Stands for a batch that cannot be read: a byte that MessagePack does not use."""
_FEWEST_TOKENS = 1 << 18
_MOST_TOKENS = 1 << 22
"""Tokens below are masked by a table, which holds four bytes for each; others one by one."""
_NAME_BYTES = 8
_NAMES = ("cache_salt", "extra_key", "session_id")
_TOKENS_AT, _EXTRA_KEYS_AT = 3, 8
"""Where an event that is an array has them."""


class Masker:
    """Masks batches: equal tokens and names get equal masks."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._drawn = np.random.default_rng(secrets.randbits(128))
        self._table = self._drawn.permutation(_FEWEST_TOKENS)

    def mask(self, payload: bytes) -> bytes:
        """The batch with masked tokens and names; `UNREADABLE` where it cannot be read."""
        try:
            batch = msgspec.msgpack.decode(payload)
            for number, event in enumerate(batch[1]):
                batch[1][number] = self._event(event)
            return msgspec.msgpack.encode(batch)
        except (msgspec.MsgspecError, ValueError, TypeError, IndexError, KeyError, RecursionError):
            return UNREADABLE

    def _event(self, event: Any) -> object:  # noqa: ANN401
        if isinstance(event, list):
            masked = list(event)
            for at, mask in ((_TOKENS_AT, self._tokens), (_EXTRA_KEYS_AT, self._names_of)):
                if masked[0] == "BlockStored" and len(masked) > at:
                    masked[at] = mask(masked[at])
            return masked
        fields: dict[str, Any] = dict(event)
        if "token_ids" in fields:
            fields["token_ids"] = self._tokens(fields["token_ids"])
        if "lookahead_token_ids" in fields:
            ahead = fields["lookahead_token_ids"] or ()
            fields["lookahead_token_ids"] = [self._tokens(each) for each in ahead]
        for name in _NAMES:
            if isinstance(fields.get(name), str):
                fields[name] = self._name(fields[name])
        if fields.get("extra_keys"):
            fields["extra_keys"] = self._names_of(fields["extra_keys"], fields.get("lora_name"))
        return fields

    def _tokens(self, tokens: Any) -> object:  # noqa: ANN401
        if not tokens:
            return tokens
        numbers = np.asarray(tokens, dtype=np.int64)
        largest = int(numbers.max())
        if int(numbers.min()) < 0 or largest >= _MOST_TOKENS:
            return [self._token(each) for each in np.ravel(numbers).tolist()]
        if largest >= len(self._table):
            self._grow(largest)
        return self._table[numbers].tolist()

    def _token(self, token: int) -> int:
        """A token that no vocabulary has."""
        digest = hashlib.blake2b(str(token).encode(), key=self._key, digest_size=4).digest()
        return int.from_bytes(digest, "big")

    def _grow(self, largest: int) -> None:
        """Make the table larger; what it has stays."""
        size = min(_MOST_TOKENS, 1 << largest.bit_length())
        more = self._drawn.permutation(np.arange(len(self._table), size))
        self._table = np.concatenate([self._table, more])

    def _name(self, name: str) -> str:
        digest = hashlib.blake2b(name.encode(errors="surrogatepass"), key=self._key)
        return f"masked-{digest.hexdigest()[: 2 * _NAME_BYTES]}"

    def _names_of(self, value: Any, known: str | None = None) -> object:  # noqa: ANN401
        """Names in extra keys, however nested; that of an adapter stands beside them and stays."""
        if isinstance(value, str):
            return value if value == known else self._name(value)
        if isinstance(value, bytes):
            return self._name(value.hex())
        if isinstance(value, Sequence):
            return [self._names_of(each, known) for each in value]
        if isinstance(value, Mapping):
            return {key: self._names_of(each, known) for key, each in value.items()}
        return value
