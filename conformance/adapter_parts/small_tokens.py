"""Small tokens: token ids that fit into a signed 32-bit number, for a cache that holds no others.

The judge draws token ids up to 2**32 - 1, because the wire format of events has four bytes for
each. A remainder such as `token % 2**31` would make one token of two, and hide a cache that
confuses them. These numbers are one to one.
"""

from __future__ import annotations

from attrs import define, field

from kvcanon.conformance.adapter_parts.token_slots import tokens_of
from kvcanon.spec.types import Key

LARGEST_INT32 = 2**31 - 1


@define(eq=False)
class SmallTokens:
    """A number of at most `largest` for each token id; most keep their own."""

    largest: int = LARGEST_INT32
    _numbers: dict[int, int] = field(factory=dict, init=False)
    _taken: set[int] = field(factory=set, init=False)
    _next: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._next = self.largest

    def tokens_of(self, key: Key) -> list[int]:
        """The numbers of the tokens of a key, as one flat list."""
        return [self._number(token) for token in tokens_of(key)]

    def _number(self, token: int) -> int:
        if token not in self._numbers:
            fits = token <= self.largest and token not in self._taken
            number = token if fits else self._unused()
            self._numbers[token] = number
            self._taken.add(number)
        return self._numbers[token]

    def _unused(self) -> int:
        """The largest number that no token has."""
        while self._next in self._taken:
            self._next -= 1
        return self._next
