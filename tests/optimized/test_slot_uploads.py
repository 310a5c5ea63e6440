"""Slot uploads: numbers reach kernels, also where the ring comes round before a copy has run."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from fake_gpu import build_driver
from kvcanon.optimized import slot_uploads as uploads_module
from kvcanon.optimized.slot_uploads import SlotUploads, slot_uploads
from late_gpu import LateDevice, LateDriver

NUMBERS = 20


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver's stand-in."""
    return build_driver(tmp_path_factory.mktemp("driver"))


def make(device: LateDevice, library: Path) -> SlotUploads:
    """A small ring, whose memory has no other owner any more."""
    made = slot_uploads(device, LateDriver(str(library), device), torch.device("cpu"), NUMBERS)
    device.synchronize()
    return made


@pytest.mark.parametrize("seed", range(10))
def test_numbers_are_there_when_kernels_read_them(
    seed: int, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel on the stream reads what was uploaded before it, however late it runs."""
    monkeypatch.setattr(uploads_module, "LEAST_NUMBERS", 1)
    device = LateDevice(seed)
    uploads, stream = make(device, library), device.stream()
    read = list[list[int]]()
    given = list[list[int]]()
    for at in range(40):
        arrays = [
            np.arange(at * 100 + part, at * 100 + part + device.rng.randrange(6), dtype=np.int32)
            for part in (0, 50)
        ]
        given.append([number for array in arrays for number in array.tolist()])
        tensors = uploads.upload(arrays, stream)
        assert [len(each) for each in tensors] == [len(each) for each in arrays]
        device.enqueue(stream, partial(lambda each: read.append(torch.cat(each).tolist()), tensors))
        device.progress(2)
    device.synchronize()
    assert read == given
    assert device.complaints == []


def test_the_largest_order_fits(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many numbers as the ring has go in one upload, again and again."""
    monkeypatch.setattr(uploads_module, "LEAST_NUMBERS", 1)
    device = LateDevice(0)
    uploads, stream = make(device, library), device.stream()
    assert uploads.numbers == NUMBERS
    for at in range(3):
        (tensor,) = uploads.upload([np.full(NUMBERS, at, np.int32)], stream)
        device.synchronize()
        assert tensor.tolist() == [at] * NUMBERS
