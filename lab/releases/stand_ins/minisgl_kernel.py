"""Stands in for `minisgl.kernel`: the comparison of keys, which the original compiles from C++.

The other kernels need a GPU, and no cache calls them.
"""

from __future__ import annotations

from typing import Any, TypeAlias

Tensor: TypeAlias = Any
"""A torch tensor of one dimension, of integers on the CPU."""


def fast_compare_key(one: Tensor, other: Tensor) -> int:
    """The number of leading elements that are equal. Raises: TypeError: the types differ."""
    if one.dtype != other.dtype:
        raise TypeError(f"keys of {one.dtype} and {other.dtype} are compared")
    common = min(len(one), len(other))
    differing = (one[:common] != other[:common]).nonzero()
    return int(differing[0]) if len(differing) else common
