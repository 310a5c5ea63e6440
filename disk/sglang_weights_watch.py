"""Notes when a running SGLang server is given other weights: what it stores is then of other pages.

SGLang empties its own caches after an update of weights and does not tell a storage backend. So its
one way to all kinds of updates is wrapped, once in a process; a store asks whether it was gone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import ParamSpec, TypeVar

from attrs import define

from kvcanon.disk.errors import DiskUnusable

_MODULE = "sglang.srt.managers.scheduler_components.weight_updater"
_CLASS = "SchedulerWeightUpdaterManager"
_WAYS = ("_observe_weight_load", "begin_weight_update")


Asked = ParamSpec("Asked")
Value = TypeVar("Value")


@define
class WeightsWatch:
    """How often the weights of this process were changed."""

    updates: int = 0
    is_set: bool = False


WATCH = WeightsWatch()
"""The one of this process."""


def watch_weights() -> WeightsWatch:
    """Watch for updates of weights from now on. Raises: DiskUnusable, in an unknown release."""
    if not WATCH.is_set:
        try:
            updater = getattr(import_module(_MODULE), _CLASS)
            ways = {name: getattr(updater, name) for name in _WAYS}
        except (ImportError, AttributeError) as error:
            raise DiskUnusable(
                "this release of SGLang updates weights in a way that is not known here; "
                "kvcanon's disk is made for SGLang 0.5.23"
            ) from error
        for name, way in ways.items():
            setattr(updater, name, _noted(way))
        WATCH.is_set = True
    return WATCH


def _noted(way: Callable[Asked, Value]) -> Callable[Asked, Value]:
    """The same way to update weights, which is counted."""

    @wraps(way)
    def noted(*given: Asked.args, **named: Asked.kwargs) -> Value:
        WATCH.updates += 1
        return way(*given, **named)

    return noted
