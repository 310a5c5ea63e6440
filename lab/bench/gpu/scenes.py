"""Pools of a model's shape with random bytes in them, and the checks that a transfer must pass.

Sources are filled with random bytes and targets with one poison value. The checks also read slots
that no transfer may write.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from attrs import frozen

from kvcanon.optimized.copy_plan import MIB
from kvcanon.optimized.gpu import Gpu
from kvcanon.optimized.layout import PageLayout, mha_layout, mla_layout
from kvcanon.optimized.page_transfer import Move, SlotArray
from kvcanon.optimized.pools import Pools
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import FULL, Counts, WritePolicy

POISON = 0xEE
CHUNK_BYTES = 64 * MIB
"""Bytes that are compared at once."""

SPARE = 8
"""One spare slot for so many pages: slots that a transfer must not write."""


class WrongBytes(RuntimeError):
    """A transfer did not move its bytes, moved others, or spoiled the compute beside it."""


@frozen
class Model:
    """A model's shape, which decides the layout of its pages."""

    kind: str
    """mha: 8 heads of 128, keys and values; mla: a latent of 576; in bf16, or in fp8 if that ends
    it."""
    layers: int
    page_size: int

    def __str__(self) -> str:
        return f"{self.kind} x{self.layers}, page {self.page_size}"

    @property
    def layout(self) -> PageLayout:
        """The layout of a page."""
        dtype = torch.float8_e4m3fn if self.kind.endswith("fp8") else torch.bfloat16
        if self.kind.startswith("mha"):
            return mha_layout(self.layers, self.page_size, 8, 128, dtype)
        return mla_layout(self.layers, self.page_size, 576, dtype)


@frozen(eq=False)
class Scene:
    """Pools, and the slots between which pages move."""

    pools: Pools
    device_slots: SlotArray
    host_slots: SlotArray
    other_device_slots: SlotArray
    """Slots that pages are loaded to, other than their old ones."""

    @property
    def layout(self) -> PageLayout:
        """Of a page."""
        return self.pools.layouts[FULL]

    @property
    def size_bytes(self) -> int:
        """Bytes that a transfer moves."""
        return len(self.device_slots) * self.layout.page_bytes

    def move(self, direction: Direction) -> Move:
        """All pages, there or back."""
        if direction is Direction.BACKUP:
            return Move(FULL, self.device_slots, self.host_slots)
        return Move(FULL, self.host_slots, self.other_device_slots)


def make_scene(gpu: Gpu, layout: PageLayout, size_bytes: int, *, scattered: bool) -> Scene:
    """Make pools of about so many bytes. Device slots are shuffled; host slots if `scattered`."""
    pages = max(1, size_bytes // layout.page_bytes)
    capacity = pages + -(-pages // SPARE)
    slots = Counts(full=capacity)
    config = CacheConfig(
        device_slots=slots, host_slots=slots, write_policy=WritePolicy.WRITE_THROUGH
    )
    rng = np.random.default_rng(pages)

    def some() -> SlotArray:
        return rng.permutation(capacity)[:pages].astype(np.int32)

    scene = Scene(
        Pools(config, {FULL: layout}, gpu.device),
        some(),
        some() if scattered else np.arange(pages, dtype=np.int32),
        some(),
    )
    for plane in scene.pools.planes(FULL):
        plane.random_(0, 256)
    scene.pools.slab(FULL).fill_(POISON)
    gpu.runtime.synchronize()
    return scene


def poison_device(scene: Scene) -> None:
    """Overwrite the device pools."""
    for plane in scene.pools.planes(FULL):
        plane.fill_(POISON)


def require_same(scene: Scene, direction: Direction) -> None:
    """Check a transfer that has ended. Raises: WrongBytes."""
    move = scene.move(direction)
    backup = direction is Direction.BACKUP
    device, host = (move.sources, move.targets) if backup else (move.targets, move.sources)
    slab = scene.pools.slab(FULL)
    for chunk in _chunks(len(device), scene.layout.page_bytes):
        there = pages_of(scene, device[chunk]).cpu()
        here = slab[torch.from_numpy(host[chunk].astype(np.int64))]
        if not torch.equal(there, here):
            page = chunk.start + int((there != here).any(dim=1).nonzero()[0])
            raise WrongBytes(f"{direction} moved page {page} of {len(device)} wrongly")
    written = torch.ones(len(slab), dtype=torch.bool, device="cpu")
    written[torch.from_numpy((host if backup else device).astype(np.int64))] = False
    untouched = written.nonzero()[:, 0]
    others = slab[untouched] if backup else pages_of(scene, untouched.numpy().astype(np.int32))
    if not bool((others == POISON).all()):
        raise WrongBytes(f"{direction} wrote to slots that it was not given")


def pages_of(scene: Scene, slots: SlotArray) -> torch.Tensor:
    """Pages of the device in the order of the host, by plain indexing."""
    planes = scene.pools.planes(FULL)
    index = torch.from_numpy(slots.astype(np.int64)).to(planes[0].device)
    parts = [plane[layer][index] for layer in range(scene.layout.layers) for plane in planes]
    return torch.cat(parts, dim=1)


def on_device(slots: SlotArray, gpu: Gpu) -> torch.Tensor:
    """Slots for kernels, in memory of the device; waits for the copy."""
    return torch.from_numpy(slots).to(gpu.device)


def _chunks(pages: int, page_bytes: int) -> Iterator[slice]:
    step = max(1, CHUNK_BYTES // page_bytes)
    for first in range(0, pages, step):
        yield slice(first, min(first + step, pages))
