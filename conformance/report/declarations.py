"""What an author can declare: what would permit a finding, or leave out its case.

A cache may differ on purpose. So a report names the field of `Profile` by which the case of a
finding breaks no law, found by playing the case again under each choice that a profile can make,
and the field of `Offer` by which a cache says that it has no such configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Any

from attrs import evolve

from kvcanon.conformance.check.result import Finding, Grounds
from kvcanon.conformance.check.trial import Trial, short_limit
from kvcanon.conformance.judge import JudgeConfig
from kvcanon.conformance.protocol.adapter import ONE_LOG, Adapter, Offer
from kvcanon.conformance.report.call_code import literal
from kvcanon.spec.config import CANON, CacheConfig, Profile, choices
from kvcanon.spec.law import LAWS
from kvcanon.spec.types import DEFAULT_NAMESPACE, Key, WritePolicy

_OF_COPIES = ("backups", "loads")
"""Choices that a cache without a host tier does not have."""
RANKS_ALIKE = "ASYNC-11"
"""The law of ranks, which no declaration changes. A replay under one may still not break it: it has
all ranks in one process, and objects at other addresses."""


def permitting(finding: Finding, adapter: Adapter) -> dict[str, str]:
    """The declarations under which the case of a finding breaks no law, and what each means.

    First those that leave the broken law to the cache, last those of what it does on its own: they
    permit much, as little of it can be judged from outside. None for a case that was not reduced:
    it may break other laws, too, and would take long.
    """
    by_law = finding.grounds is Grounds.LAW and RANKS_ALIKE not in finding.broken
    if not by_law or not finding.reduced:
        return {}
    own = [LAWS[law_id].chosen_by for law_id in finding.broken]
    declared = [
        (name, value)
        for name, value in _choices(adapter.profile, finding.case.config)
        if _permits(finding, adapter, name, value)
    ]
    declared.sort(key=lambda each: (each[0] not in own, _declared(CANON, *each).acts_unasked))
    words = choices()
    return {f"Profile({name}={literal(value)})": words[name].otherwise for name, value in declared}


def leaving_out(finding: Finding, offer: Offer, keys: Iterable[Key]) -> tuple[str, ...]:
    """The fields of an offer by which a cache without what the case has would not get the case."""
    config = finding.case.config
    has = {
        "windows_tokens=(None,)": config.window_tokens is not None and None in offer.windows_tokens,
        "mamba=(False,)": config.mamba and False in offer.mamba,
        "bigram=(False,)": config.bigram and False in offer.bigram,
        "write_policies=(WritePolicy.NONE,)": (
            config.host_tier and WritePolicy.NONE in offer.write_policies
        ),
        f"event_logs=({ONE_LOG[0]},)": (
            config.max_pending_events not in ONE_LOG and ONE_LOG[0] in offer.event_logs
        ),
        "namespaces=False": any(key.namespace != DEFAULT_NAMESPACE for key in keys),
    }
    return tuple(f"Offer({field})" for field, needed in has.items() if needed)


def _choices(profile: Profile, config: CacheConfig) -> Iterator[tuple[str, object]]:
    """Each choice that a profile does not make, one by one; of copies only where there are any."""
    for name, each in choices().items():
        if name in _OF_COPIES and not config.host_tier:
            continue
        usual = getattr(profile, name)
        for value in dict.fromkeys(each.variations.values()):
            if value != usual:
                yield name, value


def _permits(finding: Finding, adapter: Adapter, name: str, value: object) -> bool:
    """Whether the case of a finding breaks no law where the cache declares a choice."""
    declared = declaring(adapter, _declared(adapter.profile, name, value))
    try:
        with short_limit():
            found, _ = Trial(declared, JudgeConfig(finding.black_box)).play(finding.case)
    except Exception:  # noqa: BLE001  # What a cache does under another profile may be anything.
        return False
    return found is None


def _declared(profile: Profile, name: str, value: object) -> Profile:
    """A profile with another choice."""
    changes: dict[str, Any] = {name: value}
    return evolve(profile, **changes)


def declaring(adapter: Adapter, profile: Profile) -> Adapter:
    """The same cache with another profile, also in its snapshots."""
    make: Callable[..., Any] = adapter.make

    @wraps(make)
    def made(*args: object, **kwargs: object) -> Any:  # noqa: ANN401  # It is what it wraps.
        return _Declaring(make(*args, **kwargs), profile)

    return evolve(adapter, make=made, profile=profile)


class _Declaring:
    """A cache whose snapshots have another profile."""

    def __init__(self, cache: object, profile: Profile) -> None:
        self._cache, self._profile = cache, profile

    def __getattr__(self, name: str) -> object:
        """What the cache has; its snapshots with the profile."""
        found: Any = getattr(self._cache, name)
        if name != "snapshot":
            return found
        return lambda: evolve(found(), profile=self._profile)
