"""Features of a case: what its cache was, what was asked of it, and how it answered.

Pairs of them say what cases try together. A number of a configuration is a feature by its range.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import StrEnum

from attrs import fields_dict, frozen

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import CacheError
from kvcanon.spec.types import Counts


class FeatureKind(StrEnum):
    """What is counted, in the order of the reports."""

    BRANCH = "branch"
    """Of the plain cache."""
    LAW = "law"
    """That was exercised: its premise was met."""
    REFUSAL = "refusal"
    """An operation and its error: a row of docs/refusals.md."""
    REASON = "reason"
    """An operation, its error, and the text of it without its numbers."""
    SETTING = "setting"
    """A field of the configuration with a value, or a range of values."""
    SERVED = "served"
    """An operation that was served."""


@frozen(order=True)
class Feature:
    """One thing that cases visit."""

    kind: FeatureKind
    name: str


PAIRED = (FeatureKind.SETTING, FeatureKind.SERVED, FeatureKind.REFUSAL)
"""The kinds whose pairs are counted."""

IS = " = "

SLOTS = (5, 10, 21, 300)
RANGES: dict[str, tuple[int, ...]] = {
    "page_size": (2, 3, 5, 17),
    "window_tokens": (2, 3, 9),
    "load_back_threshold_pages": (1, 2),
    "max_pending_events": (4, 13),
    "slot_bytes": (9,),
    "device_slots.full": SLOTS,
    "device_slots.swa": SLOTS,
    "device_slots.mamba": (3,),
    "host_slots.full": SLOTS,
    "host_slots.swa": SLOTS,
    "host_slots.mamba": (3,),
}
"""For each field with numbers the first number of each range but the first."""


def settings_of(config: CacheConfig) -> Iterator[Feature]:
    """The settings of a configuration."""
    for name in fields_dict(CacheConfig):
        value = getattr(config, name)
        parts = {f"{name}.{each}": n for each, n in value} if isinstance(value, Counts) else {}
        for part, number in (parts or {name: value}).items():
            yield Feature(FeatureKind.SETTING, f"{part}{IS}{_range(part, number)}")


def _range(name: str, value: object) -> str:
    """The range of a number, as text; another value as it is."""
    if type(value) is not int or name not in RANGES:
        return str(value).lower()
    least = max((first for first in RANGES[name] if first <= value), default=None)
    above = min((first for first in RANGES[name] if first > value), default=None)
    if least is None:
        return f"below {above}" if above != 1 else "0"
    if above is None:
        return f"{least:,} and more"
    return str(least) if above == least + 1 else f"{least} to {above - 1}"


def refusal_of(operation: str, refusal: CacheError) -> Iterator[Feature]:
    """A refusal by its row of the table, and by its reason."""
    row = f"{operation}: {type(refusal).__name__}"
    yield Feature(FeatureKind.REFUSAL, row)
    text = re.sub(r"b'[^']*'|-?\d[\d,]*|\[[^]]*\]", "N", str(refusal))
    yield Feature(FeatureKind.REASON, f"{row}: {text}")


def pairs_of(features: Iterable[Feature]) -> Iterator[tuple[Feature, Feature]]:
    """The pairs of a case's features, each once."""
    paired = sorted(each for each in features if each.kind in PAIRED)
    for at, first in enumerate(paired):
        for second in paired[at + 1 :]:
            if _field_of(first) != _field_of(second):
                yield first, second


def _field_of(feature: Feature) -> str:
    """What has one value alone in a case; the feature itself if it is no setting."""
    if feature.kind is FeatureKind.SETTING:
        return feature.name.partition(IS)[0]
    return str(feature)
