"""`sgl_kernel.kvcacheio` without a GPU: the copies that a host tier cannot do without.

A host pool has its rows by layer, as the device has, or page after page with all layers of a page
(`page_first_direct`), which the mamba states of later releases must have.

The other copies can be imported and refuse to run: a cache that copies in another way than
`hicache_io_backend="direct"` raises at its first copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol


class Tensor(Protocol):
    """What is used of a tensor."""

    @property
    def device(self) -> object:
        """Where it is."""

    def __getitem__(self, index: object) -> Tensor: ...

    def __setitem__(self, index: object, value: Tensor) -> None: ...

    def __floordiv__(self, divisor: int) -> Tensor: ...

    def __mod__(self, divisor: int) -> Tensor: ...

    def to(self, device: object) -> Tensor:
        """The same on a device."""


def transfer_kv_direct(
    src_layers: Sequence[Tensor],
    dst_layers: Sequence[Tensor],
    src_indices: Tensor,
    dst_indices: Tensor,
    page_size: int,  # noqa: ARG001 # There is an index a token, so that pages need no care.
) -> None:
    """Copy the rows at some indices of each source to those of its target."""
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
    """Copy rows of every layer to pages that have all layers; each target has its share of them."""
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
    """Copy the rows of one layer from pages that have all layers."""
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
