"""`sgl_kernel.kvcacheio` without a GPU: the one copy that a host tier cannot do without.

What readers get wrong: the other copies can be imported, and refuse to run. A cache that copies in
another way than `hicache_io_backend="direct"` says so at its first copy.
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


def __getattr__(name: str) -> Callable[..., None]:
    if name.startswith("__"):
        raise AttributeError(name)

    def refuse(*_arguments: object, **_options: object) -> None:
        raise NotImplementedError(f"the stand-in for sgl_kernel has no {name}")

    return refuse
