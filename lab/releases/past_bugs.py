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
    """The link of its report; "unreported" if there is none."""
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
_NO_CUTS = Drawn(
    # Every node is one page: until 0.5.13 a copy of a node that is cut meanwhile is stored in part.
    config=CacheConfig(
        device_slots=Counts(full=1),
        host_slots=Counts(full=8),
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
_OLDEST, _HOST_EVENTS = "sglang==0.5.10.post1", "sglang==0.5.11"
_WINDOW_EVENTS = "sglang==0.5.12"
_OLD, _NEXT, _LAST = "sglang==0.5.12.post1", "sglang==0.5.13", "sglang==0.5.23"

PAST_BUGS: Sequence[PastBug] = (
    PastBug(
        "sgl#22894",
        "a page that comes to the host is not stored there by any event",
        "sglang-hi-radix",
        "EVENT-10",
        _OLDEST,
        _HOST_EVENTS,
        _NO_CUTS,
        # A prompt that comes back to the device emits no store in either release.
        words="came to CPU_PINNED",
    ),
    PastBug(
        "sgl#24718",
        "a cache with a sliding window emits no events",
        "sglang-swa-radix",
        "EVENT-10",
        _HOST_EVENTS,
        _WINDOW_EVENTS,
        _WINDOW,
    ),
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
        "unreported",
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
        "the pages of a node are removed first page first",
        "sglang",
        "EVENT-12",
        _NEXT,
        _LAST,
        Drawn(write_policies=(WritePolicy.NONE,)),
    ),
)
