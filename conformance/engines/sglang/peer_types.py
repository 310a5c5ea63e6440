"""Names for SGLang's objects in signatures. Their attributes differ by class and release."""

from __future__ import annotations

from typing import TypeAlias

from kvcanon.conformance.engines.installed_names import EngineObject

Tensor: TypeAlias = EngineObject
"""A tensor of torch, which is not installed where kvcanon itself is."""
Kind: TypeAlias = EngineObject
"""A `ComponentType`."""
SGLangNode: TypeAlias = EngineObject
"""A node of a tree. Nodes of the older caches have no `component_data`: they store their slots and
lock counts themselves."""
LockReceipt: TypeAlias = EngineObject
"""What `inc_lock_ref` returns, and `dec_lock_ref` takes in another form."""
