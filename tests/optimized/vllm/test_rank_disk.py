"""The identity of a rank's pages: what changes it, and what it refuses to guess."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kvcanon.disk import DiskIdentity, DiskUnusable
from kvcanon.optimized.vllm.rank_disk import vllm_identity
from kvcanon.optimized.vllm.regions import group_regions, layout_facts

BLOCKS = 4


class FlashKind:
    """Computes attention."""


class PagedKind:
    """Computes attention otherwise."""


def engine(folder: Path, **hf: object) -> Any:  # noqa: ANN401  # Stands for vLLM's configuration.
    """The configuration of an engine over the model in a folder."""
    config = {"rope_theta": 10000.0, "_name_or_path": str(folder), **hf}
    return SimpleNamespace(
        model_config=SimpleNamespace(
            model=str(folder),
            revision=None,
            dtype="torch.bfloat16",
            quantization=None,
            max_model_len=512,
            hf_config=SimpleNamespace(to_dict=lambda: config),
        ),
        cache_config=SimpleNamespace(
            cache_dtype="auto",
            block_size=32,
            kv_cache_dtype_skip_layers=[],
        ),
        parallel_config=SimpleNamespace(tensor_parallel_size=2, data_parallel_index=0),
        load_config=SimpleNamespace(load_format="auto"),
        compilation_config=SimpleNamespace(
            static_forward_context={"layer": SimpleNamespace(impl=FlashKind())}
        ),
    )


def model(folder: Path, weights: bytes = b"weights") -> Path:
    """A folder with a file of weights."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.bin").write_bytes(weights)
    return folder


def identity(config: Any, weights: str = "", rank: int = 0, **layout: str) -> DiskIdentity:  # noqa: ANN401
    """The identity of a rank."""
    return vllm_identity(config, "0.33.0", weights, layout, rank)


def changed(path: str, value: object) -> Callable[[Any], None]:
    """Set an attribute of a configuration."""
    owner, name = path.split(".")
    return lambda config: setattr(getattr(config, owner), name, value)


@pytest.mark.parametrize(
    "change",
    [
        changed("model_config.dtype", "torch.float32"),
        changed("model_config.quantization", "fp8"),
        changed("model_config.max_model_len", 1024),
        changed("cache_config.cache_dtype", "fp8"),
        changed("cache_config.block_size", 16),
        changed("parallel_config.tensor_parallel_size", 4),
        changed("parallel_config.data_parallel_index", 1),
        changed("compilation_config.static_forward_context", {"layer": PagedKind()}),
    ],
)
def test_what_changes_a_page_changes_its_identity(
    tmp_path: Path, change: Callable[[Any], None]
) -> None:
    """Each of these facts alone."""
    folder = model(tmp_path / "model")
    config = engine(folder)
    change(config)
    assert identity(config).fingerprint != identity(engine(folder)).fingerprint


def test_the_same_shapes_with_another_configuration_are_another_model(tmp_path: Path) -> None:
    """As a factor of RoPE, which changes every key."""
    folder = model(tmp_path / "model")
    longer = identity(engine(folder, rope_theta=20000.0))
    assert longer.fingerprint != identity(engine(folder)).fingerprint


def test_other_weights_at_the_same_path_are_another_model(tmp_path: Path) -> None:
    """Of the same size; and the same weights at another path are the same model."""
    folder = model(tmp_path / "model")
    before = identity(engine(folder))
    moved = tmp_path / "elsewhere" / "model"
    moved.parent.mkdir()
    folder.rename(moved)
    assert identity(engine(moved)).fingerprint == before.fingerprint
    assert identity(engine(model(folder, b"weightz"))).fingerprint != before.fingerprint


def test_ranks_have_folders_and_fingerprints_of_their_own(tmp_path: Path) -> None:
    """Rank 1 of 2 is not rank 0 of 2, nor rank 1 of 4."""
    config = engine(model(tmp_path / "model"))
    ranks = [identity(config, rank=rank) for rank in (0, 1)]
    config.parallel_config.tensor_parallel_size = 4
    ranks.append(identity(config, rank=1))
    assert len({each.fingerprint for each in ranks}) == 3
    assert len({each.folder for each in ranks}) == 3
    # Of 2 ranks and of 4 there are two models, of which one gives way to the other.
    assert ranks[0].base == ranks[1].base != ranks[2].base


def test_release_and_layout_are_facts(tmp_path: Path) -> None:
    """The bytes of a block may lie otherwise."""
    config = engine(model(tmp_path / "model"))
    usual = identity(config, layer="a")
    assert identity(config, layer="b").fingerprint != usual.fingerprint
    other = vllm_identity(config, "0.34.0", "", {"layer": "a"}, 0)
    assert other.fingerprint != usual.fingerprint


def test_weights_that_a_user_names_are_believed(tmp_path: Path) -> None:
    """Where no file says which they are."""
    config = engine(tmp_path / "nothing")
    one, two = (identity(config, weights) for weights in ("one", "two"))
    assert one.fingerprint != two.fingerprint


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (changed("load_config.load_format", "dummy"), "which weights --load-format dummy"),
        (changed("load_config.load_format", "LoadFormats.TENSORIZER"), "--load-format tensorizer"),
        (changed("model_config.model", "/nowhere/at/all"), "/nowhere/at/all"),
    ],
)
def test_what_no_fact_can_say_is_refused(
    tmp_path: Path, change: Callable[[Any], None], words: str
) -> None:
    """In a sentence that names the option."""
    config = engine(model(tmp_path / "model"))
    change(config)
    with pytest.raises(DiskUnusable, match=words):
        identity(config)


def layout(*axes: int, blocks: int = BLOCKS, dtype: torch.dtype = torch.float32) -> dict[str, str]:
    """The facts of a layer [blocks, heads, tokens, content] whose axes lie in this order."""
    sizes = (blocks, 2, 4, 8)
    lying = torch.zeros([sizes[axis] for axis in axes], dtype=dtype)
    cache = lying.permute([axes.index(axis) for axis in range(4)])
    caches = {"layer": cache}
    return layout_facts(caches, group_regions(caches, [["layer"]], blocks))


def test_layouts_differ_and_the_number_of_blocks_does_not() -> None:
    """A page of another order of axes or dtype is another; a larger cache has the same pages."""
    orders = [(0, 1, 2, 3), (0, 2, 1, 3), (1, 0, 2, 3)]
    assert len({str(layout(*order)) for order in orders}) == len(orders)
    assert layout(0, 1, 2, 3, dtype=torch.int32) != layout(0, 1, 2, 3)
    for order in orders:
        assert layout(*order, blocks=9) == layout(*order)
