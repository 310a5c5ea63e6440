"""Tables of results, as text.

A load has two times: `first` until compute may begin on its first layer, `all` until the last layer
has arrived.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import frozen

from kvcanon.lab.bench.gpu.capture import CaptureFound
from kvcanon.lab.bench.gpu.interference import Interference
from kvcanon.lab.bench.gpu.link import Link, PieceSpeed
from kvcanon.lab.bench.gpu.order import OrderFound
from kvcanon.lab.bench.gpu.sanitizer import Watched
from kvcanon.lab.bench.gpu.scenes import Model
from kvcanon.lab.bench.gpu.transfers import KernelSpeed, MeasuredTransfer
from kvcanon.optimized.calibration import Race
from kvcanon.spec.transfer import Direction


@frozen
class Sheet:
    """A table with a caption."""

    caption: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def link_sheet(link: Link) -> Sheet:
    """The speed of the link, for comparison."""
    row = tuple(f"{speed:.1f}" for speed in (link.to_host, link.to_device, link.both_in_all))
    return Sheet("One large copy, GB/s.", ("to host", "to device", "both in all"), (row,))


def transfer_sheet(transfers: Sequence[MeasuredTransfer], link: Link | None) -> Sheet:
    """The engine's transfers."""
    caption = "Transfers, GB/s and share of one large copy; loads in ms; submitting in us."
    headings = ("model", "page", "host slots", "backup", "load", "both", "first", "all", "submit")
    return Sheet(caption, headings, tuple(_transfer_row(each, link) for each in transfers))


def interference_sheet(found: Sequence[Interference]) -> Sheet:
    """How much transfers and compute slow each other down."""
    caption = "Beside bf16 matrix products, and beside a thread of Python. Transfers in GB/s."
    headings = ("", "products slower", "transfer alone", "beside", "Python left", "pause us")
    rows = (
        (
            str(each.direction),
            f"{each.slowdown:.1%}" + ("" if each.outlasted else " at least"),
            f"{each.transfer_alone:.1f}",
            f"{each.transfer_beside:.1f}" + ("" if each.products_outlasted else " at most"),
            f"{each.scheduler_beside / each.scheduler_alone:.0%}",
            f"{each.longest_pause_seconds * 1e6:.0f}",
        )
        for each in found
    )
    return Sheet(caption, headings, tuple(rows))


def order_sheet(found: OrderFound) -> Sheet:
    """What copies beside two streams of compute showed."""
    return Sheet(
        "Beside compute on another stream: every byte was right.",
        ("rounds", "loads beside later compute", "controls that were wrong"),
        ((str(found.rounds), str(found.loads_beside_compute), str(found.controls_wrong)),),
    )


def capture_sheet(found: CaptureFound) -> Sheet:
    """What the capture of graphs beside copies showed."""
    return Sheet(
        "Graphs captured and replayed while copies ran: every byte was right.",
        ("graphs", "copies"),
        ((str(found.graphs), str(found.transfers)),),
    )


def sanitizer_sheet(watched: Sequence[Watched]) -> Sheet:
    """What compute-sanitizer said of the kernels."""
    rows = tuple((each.tool, each.said, f"{each.seconds:.0f}") for each in watched)
    not_run = (("none", "not run: compute-sanitizer is not installed", "0"),)
    headings = ("tool", "said", "seconds")
    return Sheet("Our kernels under compute-sanitizer.", headings, rows or not_run)


def small_sheet(model: Model, races: dict[Direction, tuple[Race, ...]]) -> Sheet:
    """Small transfers with and without the staging ring."""
    rows = (
        (f"{sizes[0].size_bytes / 1024:,.0f}", *map(_race, sizes))
        for sizes in zip(*(races[direction][::-1] for direction in Direction), strict=True)
    )
    caption = f"{model}: without the staging ring / through it, in us."
    return Sheet(caption, ("KiB", *map(str, Direction)), tuple(rows))


def piece_sheet(found: Sequence[PieceSpeed]) -> Sheet:
    """The bandwidth of small pieces."""
    caption = "Pieces that lie apart, GB/s: in batches / one by one / as a rectangle."
    rows = (
        (
            f"{piece_bytes / 1024:,.0f}",
            *(
                " / ".join(_speeds((each.batched, each.singly, each.rectangle)))
                for each in found
                if each.piece_bytes == piece_bytes
            ),
        )
        for piece_bytes in dict.fromkeys(each.piece_bytes for each in found)
    )
    return Sheet(caption, ("KiB", "to host", "to device"), tuple(rows))


def kernel_sheet(found: Sequence[KernelSpeed]) -> Sheet:
    """The bandwidth of kernels by their number of programs."""
    caption = "Kernels alone, GB/s: on the device, and between device and host."
    headings = ("programs", "gather", "scatter", "gather to host", "scatter from host")
    rows = (
        (
            str(each.programs),
            *_speeds((each.gather, each.scatter, each.gather_to_host, each.scatter_from_host)),
        )
        for each in found
    )
    return Sheet(caption, headings, tuple(rows))


def _transfer_row(each: MeasuredTransfer, link: Link | None) -> tuple[str, ...]:
    shares = each.shares(link) if link is not None else {}
    speeds = {"backup": each.backup, "load": each.load, "both": each.both_in_all}
    return (
        f"{each.model.kind} x{each.model.layers}",
        str(each.model.page_size),
        "any order" if each.scattered else "in order",
        *(
            f"{speed:.1f} {shares[name]:.0%}" if name in shares else f"{speed:.1f}"
            for name, speed in speeds.items()
        ),
        f"{each.first_layer.median_seconds * 1e3:.2f}",
        f"{each.load_timing.median_seconds * 1e3:.2f}",
        f"{each.submit.median_seconds * 1e6:.0f}",
    )


def _race(race: Race) -> str:
    return f"{race.direct_seconds * 1e6:.0f} / {race.staged_seconds * 1e6:.0f}"


def _speeds(speeds: Iterable[float | None]) -> tuple[str, ...]:
    return tuple("-" if speed is None else f"{speed:.1f}" for speed in speeds)
