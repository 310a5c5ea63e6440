"""A short pass over the kernels, as a program of its own for a tool that watches a GPU's memory.

It backs up and loads a few pages of each shape, through the staging ring and without it, and
compares every byte. The exit code `WRONG` says that a byte was wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import torch

from kvcanon.lab.bench.gpu.scenes import Model, WrongBytes, make_scene
from kvcanon.lab.bench.gpu.transfers import check
from kvcanon.optimized.copy_plan import KIB, Limits
from kvcanon.optimized.cuda_engine import CudaEngine
from kvcanon.optimized.gpu import Gpu, gpu_at

SHAPES = (
    Model("mha", 2, 1),
    Model("mha", 2, 16),
    Model("mla", 3, 1),
    Model("mla", 3, 16),
    Model("mha fp8", 2, 1),
    Model("mla fp8", 3, 16),
)
SIZE_BYTES = 512 * KIB
WRONG = 76
"""An exit code that neither Python nor a tool has for anything else."""
THROUGH_THE_RING, BY_KERNELS_ALONE = 0, 1 << 40
"""Sizes up to which a transfer goes without the ring."""


def pass_over(gpu: Gpu, shapes: Sequence[Model] = SHAPES, size_bytes: int = SIZE_BYTES) -> int:
    """Move pages of each shape both ways; returns how many transfers. Raises: WrongBytes."""
    transfers = 0
    for shape in shapes:
        for scattered in (False, True):
            for direct_bytes in (THROUGH_THE_RING, BY_KERNELS_ALONE):
                scene = make_scene(gpu, shape.layout, size_bytes, scattered=scattered)
                limits = Limits(ring_slot_bytes=64 * KIB, piece_bytes=16 * KIB)
                with CudaEngine(scene.pools, limits, direct_bytes=direct_bytes, gpu=gpu) as engine:
                    check(scene, engine, gpu)
                scene.pools.close()
                transfers += 2
    return transfers


if __name__ == "__main__":
    try:
        print(pass_over(gpu_at(torch.device("cuda"))), "transfers")  # noqa: T201
    except WrongBytes as wrong:
        print(wrong, file=sys.stderr)  # noqa: T201
        sys.exit(WRONG)
