"""No kernel is compiled while an engine serves: construction launches every variant once."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from attrs import evolve

from gpu.layouts import BUILDERS, Shape
from gpu.scene import CONFIG, Device
from kvcanon.optimized import calibration
from kvcanon.optimized.copy_plan import Limits
from kvcanon.optimized.kernels import pages
from kvcanon.optimized.layout import mha_layout, state_layout
from kvcanon.optimized.page_transfer import Move, page_order
from kvcanon.optimized.pools import Pools
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import FULL, MAMBA, SWA, TransferId

Variant = tuple[object, ...]

WIDE = 1 << 31
"""Numbers from here on have another type in a kernel."""


class Compiler:
    """A kernel that does nothing, and remembers which variants were launched."""

    def __init__(self) -> None:
        self.compiled = set[Variant]()

    def __getitem__(self, grid: tuple[int]) -> pages.Launch:
        assert grid[0] >= 1

        def launch(*arguments: torch.Tensor | int, **constants: int) -> None:
            types = tuple(
                each.dtype if isinstance(each, torch.Tensor) else -WIDE <= each < WIDE
                for each in arguments
            )
            self.compiled.add((types, *sorted(constants.items())))

        return launch


@pytest.fixture
def compiler(device: Device, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    """The compiler of all kernels, in place of the device's interpreter."""
    made = Compiler()
    monkeypatch.setattr(pages, "MOVE_PAGES", made)
    monkeypatch.setattr(calibration, "REPEATS", 1)
    return made


HYBRID = evolve(CONFIG, page_size=16, window_tokens=64)


def hybrid_pools() -> Pools:
    """Pools of a model with full attention, windows and states: planes of several sizes."""
    states = [((4, 1024), torch.bfloat16), ((64, 256), torch.float32), ((3, 5), torch.uint8)]
    return Pools(
        HYBRID,
        {
            FULL: mha_layout(4, 16, 8, 128, torch.bfloat16),
            SWA: mha_layout(3, 16, 3, 40, torch.bfloat16),
            MAMBA: state_layout(2, states),
        },
    )


def serve(pools: Pools, device: Device, compiler: Compiler, direct_bytes: int | None) -> None:
    """Make an engine; it must compile nothing for transfers of all sizes."""
    limits = Limits(ring_slots=2, ring_slot_bytes=1, piece_bytes=1, group_bytes=1)
    with device.engine(pools, limits, direct_bytes) as engine:
        ready = set(compiler.compiled)
        assert ready
        transfer_id = TransferId(0)
        for worker in engine._workers.values():
            for at_most in (0, 1 << 12, 1 << 40):
                worker.mover.direct_bytes = at_most
                for count in (1, 2, 4):
                    numbers = np.arange(count, dtype=np.int32)[::-1].copy()
                    moves = tuple(Move(each, numbers, numbers) for each in pools.layouts)
                    for direction in Direction:
                        transfer_id += 1
                        engine.submit(page_order(transfer_id, direction, moves, pools))
                        engine.wait(transfer_id)
    assert all(done.ok for done in engine.poll())
    assert compiler.compiled == ready


@pytest.mark.parametrize("direct_bytes", [0, None], ids=["given", "calibrated"])
def test_nothing_is_compiled_for_a_model_with_windows_and_states(
    direct_bytes: int | None, device: Device, compiler: Compiler
) -> None:
    """Every size of plane, both ways and both directions are compiled before the first order."""
    serve(hybrid_pools(), device, compiler, direct_bytes)
    for given in (True, False):
        assert any(("ROWS_GIVEN", given) in variant for variant in compiler.compiled)


@pytest.mark.parametrize("name", BUILDERS)
def test_nothing_is_compiled_over_tensors_of_an_engine(
    name: str, device: Device, compiler: Compiler
) -> None:
    """Strides and addresses of the engine's own tensors choose variants, too."""
    shape = Shape(slots=12, page_size=4)
    serve(shape.pools(*BUILDERS[name](shape).given), device, compiler, 0)


def test_new_tensors_are_compiled_for_when_they_are_attached(
    device: Device, compiler: Compiler
) -> None:
    """After sleep, the tensors may be less aligned: their variants are compiled at once."""
    pools = hybrid_pools()
    with device.engine(pools, direct_bytes=0) as engine:
        compiler.compiled.clear()
        engine.use_pools()
        assert compiler.compiled
