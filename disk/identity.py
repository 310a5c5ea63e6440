"""The identity of a store: all that the bytes of its pages depend on, besides their tokens.

Facts are names and values in text, as the KV dtype or the page size. The *place* is where among the
ranks a process stands: rank 1 of 2 does not read what rank 1 of 4 wrote. From both comes a
fingerprint, which names the folder and stands in every record.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from attrs import frozen

FINGERPRINT_BYTES = 16
FORMAT = "1"
"""The version of the format on the disk. Another version reads none of these pages."""


@frozen
class DiskIdentity:
    """Facts about the model and its pages, and the place among the ranks."""

    facts: Mapping[str, str]
    place: str = "rank0of1"

    @property
    def base(self) -> bytes:
        """A digest of the model's facts, the same on all of its ranks."""
        return _digest([("format", FORMAT), *sorted(self.facts.items())])

    @property
    def fingerprint(self) -> bytes:
        """A digest of the model's facts and of the rank: it differs for any other model or rank."""
        return _digest([("base", self.base.hex()), ("place", self.place)])

    @property
    def folder(self) -> str:
        """The name of the folder of this identity."""
        return f"{self.base.hex()}-{self.place}"


def _digest(pairs: Iterable[tuple[str, str]]) -> bytes:
    """A hash that differs if any name or value does: each is framed by its length."""
    texts = (each.encode() for pair in pairs for each in pair)
    framed = b"".join(len(each).to_bytes(8, "little") + each for each in texts)
    return hashlib.sha256(framed).digest()[:FINGERPRINT_BYTES]
