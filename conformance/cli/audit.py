"""`kvcanon audit`: judges a recording of KV events."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from kvcanon.conformance.cli.command_line import BROKEN
from kvcanon.conformance.cli.live_options import (
    ClosedOption,
    HashChoice,
    HashesOption,
    IgnoreOption,
    RepeatChoice,
    RepeatsOption,
    follower_config,
    require_live,
    without_hashes,
)
from kvcanon.conformance.errors import UsageError

if TYPE_CHECKING:
    from kvcanon.live.follower import FollowerConfig
    from kvcanon.live.stream_recording import Recording


RecordingArgument: TypeAlias = Annotated[
    Path,
    typer.Argument(
        help="A file of `kvcanon watch --record`; or events of TensorRT-LLM or Dynamo, or raw "
        "batches."
    ),
]
ServedOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="LOG",
        help="Compare with what the engine served: a log of prompts and cached tokens, as of "
        "`kvcanon probe --log`.",
    ),
]


def audit_command(
    recording: RecordingArgument,
    *,
    against: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Compare with a recording of the same requests."),
    ] = None,
    source: Annotated[
        int, typer.Option(min=0, help="With --against or --served: the publisher in the recording.")
    ] = 0,
    against_source: Annotated[
        int | None,
        typer.Option(min=0, help="The publisher in the other file, if not the same number."),
    ] = None,
    served: ServedOption = None,
    windowed: Annotated[
        bool,
        typer.Option(
            "--windowed", help="With --served: a sliding window can make less usable than is there."
        ),
    ] = False,
    hashes: HashesOption = HashChoice.AUTO,
    repeats: RepeatsOption = RepeatChoice.AUTO,
    closed: ClosedOption = None,
    ignore: IgnoreOption = None,
    excerpts: Annotated[
        int, typer.Option(min=0, help="Kinds of violations that are shown by an excerpt.")
    ] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """Check the laws that a recorded stream shows by itself, and print what shows each violation.

    Ends with 0 if no law is broken, and with 1 if one is, or if the streams differ.
    """
    require_live()
    _require_one_comparison(served, against, windowed=windowed)
    # The extra may be missing, and the command line works without it.
    from kvcanon.conformance.cli.audit_report import print_audit  # noqa: PLC0415
    from kvcanon.live.audit import audit  # noqa: PLC0415
    from kvcanon.live.input_files import BadRecording  # noqa: PLC0415
    from kvcanon.live.other_planes import open_stream  # noqa: PLC0415
    from kvcanon.live.served import audit_served  # noqa: PLC0415

    config = follower_config(hashes, repeats, closed, ignore)
    try:
        recorded = open_stream(recording)
        compared = None if against is None else open_stream(against)
        _require_tokens(recorded, compared, served, hashes)
        if compared is not None:
            sources = source, source if against_source is None else against_source
            return _compare((recorded, compared), sources, config, as_json=as_json)
        if recorded.masked:
            config = without_hashes(config)
        result = audit(recorded, config, excerpts)
        beside = None
        if served is not None:
            _require_source(recorded, source)
            beside = audit_served(recorded, served, config, source, partly=windowed)
    except BadRecording as error:
        raise UsageError(str(error)) from error
    print_audit(recorded, result, beside, as_json=as_json)
    streams = result.streams
    wrong = streams.total or not streams.events or (beside is not None and not beside.holds)
    return BROKEN if wrong else 0


def _require_one_comparison(served: Path | None, against: Path | None, *, windowed: bool) -> None:
    """Refuse options that do not go together. Raises: UsageError."""
    if windowed and served is None:
        raise UsageError("--windowed says how a log is compared; give the log by --served")
    if served is not None and against is not None:
        raise UsageError("--served and --against are two comparisons; give one of them")


def _compare(
    recordings: tuple[Recording, Recording],
    sources: tuple[int, int],
    config: FollowerConfig,
    *,
    as_json: bool,
) -> int:
    """Compare a publisher of each. Raises: BadRecording, UsageError."""
    from kvcanon.conformance.cli.audit_report import print_comparison  # noqa: PLC0415
    from kvcanon.live.against import compare  # noqa: PLC0415

    for recording, source in zip(recordings, sources, strict=True):
        _require_source(recording, source)
    result = compare(*recordings, config, sources)
    print_comparison(result, recordings[0].path, recordings[1].path, as_json=as_json)
    return 0 if result.is_same_sum else BROKEN


def _require_tokens(
    recorded: Recording, compared: Recording | None, served: Path | None, hashes: HashChoice
) -> None:
    """Refuse what the tokens of a masked recording would be needed for. Raises: UsageError."""
    needed = served is not None or hashes is HashChoice.TOKENS
    for each in (recorded, compared):
        if each is not None and each.masked and (needed or compared is not None):
            raise UsageError(
                f"the tokens of {each.path} are masked, so that they cannot be compared with "
                "others; record with --keep-tokens"
            )


def _require_source(recording: Recording, source: int) -> None:
    """Refuse a publisher that a recording does not have. Raises: UsageError."""
    if source >= len(recording.sources):
        raise UsageError(
            f"{recording.path} has {len(recording.sources)} publishers, "
            f"counted from 0; there is no {source}"
        )
