"""A prompt's cache in mlx-lm, with arrays that say which slots and bytes they hold.

The layers are those of a model that mixes kinds: one of full attention, one with a sliding window,
and one with a recurrent state. `RotatingKVCache(max_size=n)` keeps n tokens, that of the query
included. The spec does not count that token, so its window is one less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from kvcanon.conformance.engines.installed_names import EngineObject, InstalledNames
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import FULL, MAMBA, SWA, Component, Slot

MLX = InstalledNames(
    package="mlx-lm",
    engine="mlx-lm",
    release="mlx-lm==0.32.2",
    modules={
        "ArraysCache": "mlx_lm.models.cache",
        "KVCache": "mlx_lm.models.cache",
        "LRUPromptCache": "mlx_lm.models.cache",
        "RotatingKVCache": "mlx_lm.models.cache",
        "array": "mlx.core",
        "can_trim_prompt_cache": "mlx_lm.models.cache",
        "trim_prompt_cache": "mlx_lm.models.cache",
    },
)
_STATE, _BYTES = 0, 1
"""The two arrays of a recurrent state: its slot's number, and its bytes."""


def empty_layers(config: CacheConfig) -> list[EngineObject]:
    """The layers of a prompt before any token is computed."""
    made: list[EngineObject] = []
    for component in config.components:
        if component is FULL:
            made.append(MLX["KVCache"]())
        elif component is SWA:
            made.append(MLX["RotatingKVCache"](max_size=(config.window_tokens or 0) + 1))
        else:
            made.append(MLX["ArraysCache"](size=2))
    return made


def add_pages(
    config: CacheConfig,
    layers: Sequence[EngineObject],
    first_page: int,
    new: Mapping[Component, Sequence[Slot]],
) -> None:
    """Compute pages in new slots, as a forward pass does; their bytes are not written yet."""
    for component, layer in zip(config.components, layers, strict=True):
        slots = new[component]
        if component is MAMBA:
            _move_state(config, layer, slots)
        elif slots:
            rows = [(slot, page) for page, slot in enumerate(slots, first_page)]
            keys = np.repeat(np.array(rows, dtype=np.int32), config.page_size, axis=0)
            values = np.zeros((len(keys), config.slot_bytes), dtype=np.uint8)
            layer.update_and_fetch(MLX["array"](keys[None, None]), MLX["array"](values[None, None]))


def slots_in(
    config: CacheConfig, layers: Sequence[EngineObject]
) -> dict[Component, tuple[Slot, ...]]:
    """The slots that a prompt's cache holds copies of, by component, in the order of pages."""
    return {
        # A rotating layer is not in the order of pages.
        component: tuple(
            dict.fromkeys(
                slot for slot, _ in sorted(_rows(component, layer), key=lambda row: row[1])
            )
        )
        for component, layer in zip(config.components, layers, strict=True)
    }


def write_bytes(
    config: CacheConfig,
    layers: Sequence[EngineObject],
    written: Mapping[tuple[Component, Slot], bytes],
) -> None:
    """Set the bytes of those slots that a prompt's cache holds."""
    for component, layer in zip(config.components, layers, strict=True):
        numbers = [slot for slot, _ in _rows(component, layer)]
        content = _content(component, layer)
        for at, slot in enumerate(numbers):
            if (component, slot) in written:
                content[at] = np.frombuffer(written[component, slot], dtype=np.uint8)
        if component is MAMBA and numbers:
            layer.cache[_BYTES] = MLX["array"](content[0])
        elif numbers:
            layer.values[..., : len(content), :] = MLX["array"](content[None, None])


def read_bytes(
    config: CacheConfig, layers: Sequence[EngineObject], component: Component, slot: Slot
) -> bytes:
    """The bytes of a slot that a prompt's cache holds."""
    layer = layers[config.components.index(component)]
    numbers = [each for each, _ in _rows(component, layer)]
    content: bytes = _content(component, layer)[numbers.index(slot)].tobytes()
    return content


def _move_state(config: CacheConfig, layer: EngineObject, slots: Sequence[Slot]) -> None:
    """Give a state a new slot; it keeps the bytes that it goes on from."""
    for slot in slots:
        layer.cache[_STATE] = MLX["array"](np.array([slot], dtype=np.int32))
        if layer.cache[_BYTES] is None:
            layer.cache[_BYTES] = MLX["array"](np.zeros(config.slot_bytes, dtype=np.uint8))


def _rows(component: Component, layer: EngineObject) -> list[list[int]]:
    """The slot and page of each token in a layer's memory, or of its state."""
    if component is MAMBA:
        state = layer.cache[_STATE]
        return [] if state is None else [[slot, 0] for slot in state.tolist()]
    if not layer.offset:
        return []
    keys, _ = layer.keys_and_values()
    return cast("list[list[int]]", keys[0, 0].tolist())


def _content(component: Component, layer: EngineObject) -> NDArray[np.uint8]:
    """The bytes of each token in a layer's memory, or of its state."""
    if component is MAMBA:
        content = layer.cache[_BYTES]
        return np.zeros((0, 0), np.uint8) if content is None else np.array(content)[None]
    if not layer.offset:
        return np.zeros((0, 0), np.uint8)
    _, values = layer.keys_and_values()
    return np.array(values[0, 0])
