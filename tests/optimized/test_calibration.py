"""Calibration of the staging ring, and the trial of batched copies."""

from __future__ import annotations

import ctypes
import logging
from pathlib import Path

import pytest
import torch

from fake_gpu import FakeRuntime, build_driver
from kvcanon.optimized.calibration import Race, largest_won
from kvcanon.optimized.cuda_driver import CudaDriver
from kvcanon.optimized.gpu import Gpu, prove_batches
from kvcanon.optimized.host_slab import HostSlab


@pytest.mark.parametrize(
    ("seconds", "won"),
    [
        ([(1.0, 2.0), (2.0, 3.0), (4.0, 3.5)], 2),
        ([(3.0, 2.0), (2.0, 3.0), (4.0, 5.0)], 0),
        ([(1.0, 2.0), (2.0, 2.0), (3.0, 4.0)], 3),
        ([], 0),
    ],
)
def test_the_ring_is_left_out_up_to_where_it_first_wins(
    seconds: list[tuple[float, float]], won: int
) -> None:
    """A larger size that wins after a lost one does not count."""
    races = [Race(at + 1, direct, staged) for at, (direct, staged) in enumerate(seconds)]
    assert largest_won(races[::-1]) == won


@pytest.mark.parametrize("error", [0, 801])
def test_batches_are_tried_before_they_are_relied_on(
    error: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """If the driver refuses batches, copies go one by one, and the log says so."""
    library = build_driver(tmp_path)
    driver = CudaDriver(str(library))
    ctypes.CDLL(str(library)).fake_reset(error)
    with caplog.at_level(logging.WARNING):
        prove_batches(
            Gpu(torch.device("cpu"), FakeRuntime(), driver),
            HostSlab(1, 4096, torch.device("cpu")),
        )
    assert driver.has_batches is (error == 0)
    assert ("copies go one by one" in caplog.text) is (error != 0)
