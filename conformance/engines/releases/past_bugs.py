"""Past bugs, each with two releases: the last one with the bug and the first one without it.

A row says which law the bug breaks, and which configurations to draw: those in which the bug can
show. A bug that is not found in the later release is fixed there. That says nothing about other
bugs, even of the same law.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import asdict, evolve, frozen

from kvcanon.conformance.protocol.adapter import Offer
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import Counts, WritePolicy

WINDOWS_TOKENS = tuple(window for window in Offer().windows_tokens if window is not None)


@frozen
class Drawn:
    """Which configurations to draw; None means all that the cache offers."""

    windows_tokens: tuple[int, ...] | None = None
    mamba: tuple[bool, ...] | None = None
    write_policies: tuple[WritePolicy, ...] | None = None
    config: CacheConfig | None = None
    """The only configuration to draw, for a bug that others show rarely."""

    def of(self, offer: Offer) -> Offer:
        """The offer, narrowed."""
        drawn = asdict(self, recurse=False, filter=lambda each, _: each.name != "config")
        return evolve(offer, **{name: only for name, only in drawn.items() if only is not None})


@frozen
class PastBug:
    """A bug, with the releases before and after its fix."""

    bug: str
    """The link of its report, if there is one."""
    what: str
    """What went wrong, in a few words."""
    cache: str
    """The name of the adapter."""
    law_id: str
    before: str
    """The last release with the bug that an environment is made for."""
    after: str
    """The first release without the bug."""
    drawn: Drawn
    words: str = ""
    """Text that only findings of this bug contain, and no others of the same law."""

    @property
    def releases(self) -> tuple[str, str]:
        """Both releases, the earlier one first."""
        return self.before, self.after


_WINDOW = Drawn(windows_tokens=WINDOWS_TOKENS, mamba=(False,), write_policies=(WritePolicy.NONE,))
_WINDOW_ON_HOST = evolve(_WINDOW, write_policies=(WritePolicy.WRITE_THROUGH,))
_ONE_TOKEN_WINDOW = Drawn(
    config=CacheConfig(
        window_tokens=1,
        device_slots=Counts(full=24, swa=24),
        host_slots=Counts(full=40, swa=40),
        write_policy=WritePolicy.WRITE_THROUGH,
    )
)
_FEW_WINDOW_SLOTS = Drawn(
    config=CacheConfig(
        window_tokens=1,
        device_slots=Counts(full=24, swa=3),
        host_slots=Counts(full=40, swa=40),
        write_policy=WritePolicy.WRITE_THROUGH,
    )
)
_OLD, _NEXT, _LAST = "sglang==0.5.12.post1", "sglang==0.5.13", "sglang==0.5.23"

PAST_BUGS: Sequence[PastBug] = (
    PastBug(
        "sgl#26615",
        "a match keeps window data recent that nobody can reach",
        "sglang",
        "REC-1",
        _OLD,
        _NEXT,
        _WINDOW,
    ),
    PastBug(
        "sgl#25065",
        "a leaf below a parent without a host copy is not copied",
        "sglang",
        "RES-5",
        _OLD,
        _NEXT,
        _ONE_TOKEN_WINDOW,
        # Window data that an insert brings back is not copied in either release.
        words="copy of its full data",
    ),
    PastBug(
        "sgl#26302",
        "a load evicts full data because window slots are short",
        "sglang",
        "LOAD-1",
        _OLD,
        _NEXT,
        _FEW_WINDOW_SLOTS,
    ),
    PastBug(
        "not told of",
        "the upper part of a node that is cut has no hits",
        "sglang",
        "MATCH-5",
        _OLD,
        _NEXT,
        _WINDOW_ON_HOST,
    ),
    PastBug(
        "sgl#29352",
        "healing a tombstone frees full slots under a lock",
        "sglang",
        "LOCK-4",
        _NEXT,
        _LAST,
        _WINDOW,
    ),
    PastBug(
        "sgl#29265",
        "a node of several pages is told of as removed from its front",
        "sglang",
        "EVENT-12",
        _NEXT,
        _LAST,
        Drawn(write_policies=(WritePolicy.NONE,)),
    ),
)
