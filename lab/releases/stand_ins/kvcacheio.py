"""`sgl_kernel.kvcacheio` without a GPU: only the copies that a host tier needs.

A host pool stores rows by layer, like the device, or page by page with all layers of a page
(`page_first_direct`), which later releases need for mamba states.

The other copies can be imported but refuse to run: a cache with an `hicache_io_backend` other than
"direct" raises at its first copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol


class Tensor(Protocol):
    """The tensor methods that this module uses."""

    @property
    def device(self) -> object:
        """The device of the tensor."""

    def __getitem__(self, index: object) -> Tensor: ...

    def __setitem__(self, index: object, value: Tensor) -> None: ...

    def __floordiv__(self, divisor: int) -> Tensor: ...

    def __mod__(self, divisor: int) -> Tensor: ...

    def to(self, device: object) -> Tensor:
        """Copy the tensor to a device."""


def transfer_kv_direct(
    src_layers: Sequence[Tensor],
    dst_layers: Sequence[Tensor],
    src_indices: Tensor,
    dst_indices: Tensor,
    page_size: int,  # noqa: ARG001 # There is one index per token.
) -> None:
    """Copy rows of each source, at the source indices, to the target indices of its target."""
    for source, target in zip(src_layers, dst_layers, strict=True):
        rows = source[src_indices.to(source.device)]
        target[dst_indices.to(target.device)] = rows.to(target.device)


def transfer_kv_all_layer_direct_lf_pf(
    src_ptrs: Sequence[Tensor],
    dst_ptrs: Sequence[Tensor],
    src_indices: Tensor,
    dst_indices: Tensor,
    page_size: int,
) -> None:
    """Copy rows of every layer to pages that hold all layers; each target gets its share."""
    layers = len(src_ptrs) // len(dst_ptrs)
    for at, source in enumerate(src_ptrs):
        target, layer = dst_ptrs[at // layers], at % layers
        rows = source[src_indices.to(source.device)].to(target.device)
        there = dst_indices.to(target.device)
        target[there // page_size, layer, there % page_size] = rows


def transfer_kv_per_layer_direct_pf_lf(
    src_ptrs: Sequence[Tensor],
    dst_ptrs: Sequence[Tensor],
    src_indices: Tensor,
    dst_indices: Tensor,
    *,
    layer_id: int,
    page_size: int,
) -> None:
    """Copy the rows of one layer from pages that hold all layers."""
    for source, target in zip(src_ptrs, dst_ptrs, strict=True):
        here = src_indices.to(source.device)
        rows = source[here // page_size, layer_id, here % page_size]
        target[dst_indices.to(target.device)] = rows.to(target.device)


def __getattr__(name: str) -> Callable[..., None]:
    if name.startswith("__"):
        raise AttributeError(name)

    def refuse(*_arguments: object, **_options: object) -> None:
        raise NotImplementedError(f"the stand-in for sgl_kernel has no {name}")

    return refuse
