"""Dialects: the encodings of events that routers in use can read."""

from __future__ import annotations

from enum import IntEnum, StrEnum

from kvcanon.spec.types import Medium


class Dialect(StrEnum):
    """How a publisher encodes its events."""

    SGLANG = "sglang"
    """Maps tagged with `type`; hashes are signed integers, the first 64 bits. SGLang 0.5.20 on."""
    VLLM = "vllm"
    """As SGLang's, with vLLM's fields and media names; hashes are unsigned, the last 64 bits."""
    LEGACY = "legacy"
    """Arrays whose fields are known by their places, as both engines sent before. Namespaces are
    not carried."""


DIALECTS = tuple(Dialect)
"""By their numbers in the native encoder."""

MEDIA = ("GPU", "CPU_PINNED", "DISK", "EXTERNAL", "other")
"""Media by their numbers in the native ledger."""


def tier_name(medium: int, *, is_remote: bool, owner: bytes) -> str:
    """The name of a tier: its medium, and what distinguishes it from others on that medium."""
    words = [MEDIA[medium], "REMOTE" if is_remote else "", owner.decode(errors="replace")]
    return " ".join(filter(None, words))


class GroupKind(IntEnum):
    """What the layers of a group keep, by the numbers of the native ledger."""

    UNSAID = 0
    """The stream does not say; judged as full attention."""
    FULL = 1
    WINDOW = 2
    """A sliding window, or chunks of local attention: a block leaves before those that follow."""
    STATES = 3
    """Recurrent states: only some positions are kept."""
    OTHER = 4
    """A kind that kvcanon does not know; blocks need no blocks before them."""


def media_name(medium: Medium, dialect: Dialect) -> str:
    """The name of a medium on the wire."""
    return "CPU" if dialect is Dialect.VLLM and medium is Medium.CPU else medium.value
