"""Names in the installed release of LMDeploy.

The version number is for reports only; nothing depends on it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module

from kvcanon.conformance.engines.lmdeploy.peer_types import Blocks, Named
from kvcanon.conformance.engines.package_version import installed_version
from kvcanon.conformance.errors import UsageError, describe_exception

PACKAGE = "lmdeploy"
PLACES: Mapping[str, str] = {
    "Scheduler": "lmdeploy.pytorch.paging.scheduler",
    "SchedulerConfig": "lmdeploy.pytorch.config",
    "CacheConfig": "lmdeploy.pytorch.config",
    "SamplingParam": "lmdeploy.pytorch.messages",
    "SequenceMeta": "lmdeploy.pytorch.messages",
    "UpdateTokenMode": "lmdeploy.pytorch.messages",
    "ARSequenceStrategy": "lmdeploy.pytorch.strategies.ar.sequence",
}
"""The module of each name."""


def version() -> str:
    """The installed release. Raises: UsageError."""
    return installed_version(PACKAGE, "LMDeploy", "lmdeploy==0.18.0")


@cache
def named(name: str) -> Named:
    """Find a class by name. Raises: UsageError."""
    try:
        found = getattr(import_module(PLACES[name]), name)
    except AttributeError:
        raise UsageError(f"LMDeploy {version()} has no {name} in {PLACES[name]}") from None
    except Exception as error:
        raise UsageError(
            f"LMDeploy {version()} cannot be used here: {describe_exception(error)}"
        ) from error
    logging.getLogger(PACKAGE).setLevel(logging.ERROR)
    return found


def array_of(numbers: Sequence[int]) -> Blocks:
    """Numbers as the array type that LMDeploy takes."""
    numpy = import_module("numpy")
    return numpy.array(numbers, dtype=numpy.int64)
