"""The attributes of SGLang's objects that the adapter uses, as types.

SGLang's objects have many more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

Tensor: TypeAlias = Any
"""A tensor of torch, which is not installed where kvcanon itself is."""
Kind: TypeAlias = Any
"""A `ComponentType`."""
Module: TypeAlias = Any
"""A class or function of SGLang, found by its name."""


class RadixKey(Protocol):
    """A prompt, or the edge of a node."""

    token_ids: Sequence[int]
    extra_key: str | None
    is_bigram: bool

    def __len__(self) -> int: ...


class ComponentData(Protocol):
    """One component's data at one node."""

    value: Tensor | None
    host_value: Tensor | None
    lock_ref: int
    host_lock_ref: int
    metadata: dict[str, object]


class SGLangNode(Protocol):
    """A node of the tree."""

    id: int
    parent: SGLangNode | None
    children: Mapping[object, SGLangNode]
    key: RadixKey
    component_data: Sequence[ComponentData]
    hit_count: int
    priority: int
    creation_time: float
    last_access_time: float
    hash_value: Sequence[str] | None
    lru_prev: Sequence[SGLangNode | None]


class PlainNode(Protocol):
    """A node of the older caches, which stores its slots itself."""

    value: Tensor | None
    lock_ref: int
    """RadixCache only; the fields below are of SWARadixCache."""
    full_lock_ref: int
    swa_lock_ref: int
    swa_tombstone: bool
    """Whether its window data is gone."""
    swa_uuid: int | None
    """The id of locks whose window begins at this node."""


class HostedNode(Protocol):
    """A node of HiRadixCache, which also has host slots."""

    value: Tensor | None
    lock_ref: int
    host_value: Tensor | None


class LockReceipt(Protocol):
    """What `inc_lock_ref` returns, and `dec_lock_ref` takes in another form."""

    swa_uuid_for_lock: int | None
    """The id on the node where the window begins; later releases have one per component."""
    component_lock_uuids: Mapping[Kind, int | None]
    skip_lock_node_ids: Mapping[Kind, Collection[int]]
    """The nodes without data of a component, which the lock does not count."""

    def to_dec_params(self) -> object:
        """What `dec_lock_ref` takes."""


Cache: TypeAlias = Any
"""An SGLang cache; its methods differ by class and release."""
