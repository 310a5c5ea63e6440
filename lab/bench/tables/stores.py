"""The table of `kvcanon lab bench store`: ways to keep pages, each beside the raw one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median, quantiles
from typing import Any

from kvcanon.lab.bench.tables.table import RunFile, Table, ratio, table

Round = Mapping[str, Any]
"""What a way took in a round: a `StoreTime`, as it is written."""
HEADS = tuple(
    head
    for unit, of in (("GB/s", "speed"), ("s/GB", "s/GB"))
    for kind in ("write", "read")
    for head in (f"{kind}, {unit}", f"{kind} {of}, of raw")
)


def store_speed(files: Sequence[RunFile]) -> Table:
    """Speeds and processor seconds a gigabyte, each with the ratio to the raw way of its round."""
    times = [{**each, "file": at} for at, file in enumerate(files) for each in file["times"]]
    rows = []
    ways = [(each["way"], each["raw"], each["page_bytes"]) for f in files for each in f["ratios"]]
    for way, raw, page_bytes in dict.fromkeys(ways):
        own, beside = (_rounds(times, each, page_bytes) for each in (way, raw))
        rows.append(
            (
                way,
                f"{page_bytes >> 10:,} KiB",
                *(cell for kind in ("write", "read") for cell in _speed(own, beside, kind)),
                *(cell for kind in ("write", "read") for cell in _processor(own, beside, kind)),
            )
        )
    moved = max(each["moved_bytes"] for each in times) / 2**20
    rounds = sorted({len(_rounds(times, way, page_bytes)) for way, _, page_bytes in ways})
    return table(
        ("way", "page", *HEADS),
        rows,
        f"medians of {' to '.join(map(str, rounds))} rounds of {moved:,.0f} MiB, with the middle "
        "half of the rounds in brackets; s/GB are processor seconds a gigabyte of the client's "
        "process",
    )


def _rounds(times: Sequence[Round], way: str, page_bytes: int) -> list[Round]:
    """What a way took with pages of a size, by file and round."""
    own = [each for each in times if (each["way"], each["page_bytes"]) == (way, page_bytes)]
    return sorted(own, key=lambda each: (int(each["file"]), int(each["round"])))


def _speed(own: Sequence[Round], beside: Sequence[Round], kind: str) -> tuple[str, str]:
    """Gigabytes a second, and what that is of the raw way's."""
    name = f"{kind}_seconds"
    speed = median(each["moved_bytes"] / 1e9 / each[name] for each in own)
    pairs = zip(own, beside, strict=True)
    return f"{speed:.2f}", _spread([raw[name] / each[name] for each, raw in pairs])


def _processor(own: Sequence[Round], beside: Sequence[Round], kind: str) -> tuple[str, str]:
    """Processor seconds a gigabyte, and what that is of the raw way's."""
    name = f"{kind}_cpu_seconds"
    used = median(each[name] / each["moved_bytes"] * 1e9 for each in own)
    pairs = zip(own, beside, strict=True)
    return f"{used:.2f}", _spread([each[name] / raw[name] for each, raw in pairs])


def _spread(ratios: Sequence[float]) -> str:
    """The median, and the middle half if there is one."""
    if len(ratios) < 2 or set(ratios) == {1.0}:
        return ratio(median(ratios))
    first, middle, third = quantiles(ratios, method="inclusive")
    return f"{ratio(middle)} ({ratio(first)} to {ratio(third)})"
