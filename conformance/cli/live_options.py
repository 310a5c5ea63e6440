"""Options that `watch` and `audit` share, and the check that their extra is there."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer
from attrs import evolve

from kvcanon.conformance.errors import UsageError
from kvcanon.spec.law import LAWS
from kvcanon.spec.wire import WIRE_LAWS

if TYPE_CHECKING:
    from kvcanon.live.follower import FollowerConfig


class HashChoice(StrEnum):
    """How hashes are judged, by the names of `kvcanon.live.follower.HashRule`."""

    AUTO = "auto"
    TOKENS = "tokens"
    OPAQUE = "opaque"


HashesOption: TypeAlias = Annotated[
    HashChoice,
    typer.Option(
        help="auto: once hashes are seen to follow from tokens, all must; tokens: all must; "
        "opaque: not judged."
    ),
]


class RepeatChoice(StrEnum):
    """What a store means of a block that is there, as `kvcanon.live.follower.RepeatRule`."""

    AUTO = "auto"
    ONCE = "once"
    COUNTED = "counted"
    REPORTED = "reported"


class ClosedChoice(StrEnum):
    """Media that can be demanded to hold whole prefixes."""

    HOST = "host"
    DISK = "disk"
    EXTERNAL = "external"


CLOSED_MEDIA = {
    ClosedChoice.HOST: "CPU_PINNED",
    ClosedChoice.DISK: "DISK",
    ClosedChoice.EXTERNAL: "EXTERNAL",
}
"""By their names in `kvcanon.live.dialects.MEDIA`."""

RepeatsOption: TypeAlias = Annotated[
    RepeatChoice,
    typer.Option(
        help="A store of a block that is there: once: EVENT-2; counted: one more copy; reported: "
        "a report, as of vLLM's kv_cache_report_mode; auto: by what the stream says."
    ),
]
ClosedOption: TypeAlias = Annotated[
    list[ClosedChoice] | None,
    typer.Option(
        help="Demand on this medium, too, that the block before is there; disk is DISK and "
        "STORAGE. Not the host under write_back. Repeat for more."
    ),
]
IgnoreOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(metavar="LAW", help="Do not report this law, as EVENT-13. Repeat for more."),
]


def require_live() -> None:
    """Refuse where the extra `live` is missing. Raises: UsageError."""
    try:
        for module in ("kvcanon.live", "kvcanon.live.metrics"):
            import_module(module)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"this command needs {error.name}, which is not installed; "
            "run `pip install 'kvcanon[live]'`"
        ) from error
    except ImportError as error:
        raise UsageError(str(error)) from error


def ignored_laws(given: Sequence[str] | None) -> frozenset[str]:
    """The ids of laws to ignore. Raises: UsageError."""
    import_module("kvcanon.spec.laws")
    for law_id in given or ():
        if law_id not in LAWS and law_id not in WIRE_LAWS:
            raise UsageError(f"--ignore {law_id}: there is no such law; see `kvcanon laws`")
    return frozenset(given or ())


def without_hashes(config: FollowerConfig) -> FollowerConfig:
    """The same, with hashes taken as names, for masked tokens."""
    from kvcanon.live.follower import HashRule  # noqa: PLC0415

    return evolve(config, hashes=HashRule.OPAQUE)


def follower_config(
    hashes: HashChoice,
    repeats: RepeatChoice,
    closed: Sequence[ClosedChoice] | None,
    ignore: Sequence[str] | None,
) -> FollowerConfig:
    """What is judged, by the options. Raises: UsageError."""
    from kvcanon.live.follower import FollowerConfig, HashRule, RepeatRule  # noqa: PLC0415

    media = frozenset(CLOSED_MEDIA[each] for each in closed or ())
    rules = HashRule[hashes.name], RepeatRule[repeats.name]
    return FollowerConfig(*rules, media, ignored_laws(ignore))
