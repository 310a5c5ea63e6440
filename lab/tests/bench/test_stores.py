"""The table of `kvcanon lab bench store`."""

from __future__ import annotations

import pytest
from attrs import asdict, evolve

from kvcanon.lab.bench.store_speed import StoreTime, ratios
from kvcanon.lab.bench.tables.stores import store_speed

RAW = StoreTime("raw", 1 << 18, 0, 1 << 30, 1.0, 0.5, 0.5, 0.25)


def run(times: list[StoreTime], raw: str = "raw") -> dict[str, object]:
    """A file of the command."""
    compared = [asdict(each) for each in ratios(times, raw)]
    return {"times": [asdict(each) for each in times], "ratios": compared, "restart": None}


def test_each_way_is_beside_the_raw_one_of_its_round() -> None:
    """Slow rounds are slow for both: the ratio of a way does not see them."""
    times = []
    for number, slowness in enumerate((1.0, 4.0, 1.0, 2.0, 1.0)):
        raw = StoreTime("raw", 1 << 18, number, 1 << 30, slowness, 0.5, slowness / 2, 0.25)
        own = (2 * slowness, 1.0, slowness / 4, 0.5)
        times += [raw, StoreTime("tier", 1 << 18, number, 1 << 30, *own)]
    made = store_speed([run(times)])
    assert made.heads[:4] == ("way", "page", "write, GB/s", "write speed, of raw")
    assert made.heads[-2:] == ("read, s/GB", "read s/GB, of raw")
    assert made.rows == (
        ("raw", "256 KiB", "1.07", "1.00", "2.15", "1.00", "0.47", "1.00", "0.23", "1.00"),
        (
            *("tier", "256 KiB", "0.54", "0.50 (0.50 to 0.50)", "4.29", "2.00 (2.00 to 2.00)"),
            *("0.93", "2.00 (2.00 to 2.00)", "0.47", "2.00 (2.00 to 2.00)"),
        ),
    )
    assert made.figures_are.startswith("medians of 5 rounds of 1,024 MiB, with the middle half")


def test_the_middle_half_is_of_the_rounds() -> None:
    """One round that another program disturbed is not in it."""
    times = []
    for number, speed in enumerate((0.8, 0.9, 1.0, 1.1, 20.0)):
        raw = evolve(RAW, round=number)
        times += [raw, evolve(raw, way="tier", write_seconds=1 / speed)]
    row = store_speed([run(times)]).rows[1]
    assert row[3] == "1.00 (0.90 to 1.10)"


def test_stores_of_several_files_are_one_table() -> None:
    """Each has its own raw way, also where sizes and rounds are the same."""
    client = evolve(RAW, way="client", write_seconds=4.0)
    mine = [RAW, evolve(RAW, way="disk", write_seconds=2.0)]
    theirs = [client, evolve(client, way="over the client", write_seconds=2.0)]
    rows = store_speed([run(mine), run(theirs, "client")]).rows
    assert [(row[0], row[3]) for row in rows] == [
        *(("raw", "1.00"), ("disk", "0.50")),
        *(("client", "1.00"), ("over the client", "2.00")),
    ]


def test_rounds_of_several_runs_are_taken_together() -> None:
    """A round is beside the raw way of its own run."""
    runs = []
    for slowness in (1.0, 3.0):
        raw = evolve(RAW, write_seconds=slowness)
        runs.append(run([raw, evolve(raw, way="tier", write_seconds=2 * slowness)]))
    made = store_speed(runs)
    assert [row[3] for row in made.rows] == ["1.00", "0.50 (0.50 to 0.50)"]
    assert made.figures_are.startswith("medians of 2 rounds of 1,024 MiB")


def test_a_file_without_measurements_has_no_table() -> None:
    """Nothing is made of nothing."""
    with pytest.raises(ValueError, match="empty"):
        store_speed([{"times": [], "ratios": []}])
