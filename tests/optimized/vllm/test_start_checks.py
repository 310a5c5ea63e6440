"""What the connector refuses when an engine starts, and what it takes vLLM's interface to be."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kvcanon.optimized.vllm.start_checks import (
    PARAMETERS,
    check_engine,
    check_interface,
    engine_groups,
)


def interface(changed: dict[str, tuple[str, ...] | None]) -> type:
    """A base class of connectors, with changed methods."""
    methods = {}
    for name, parameters in {**PARAMETERS, **changed}.items():
        if parameters is not None:
            given = ", ".join(("self", *parameters))
            methods[name] = eval(f"lambda {given}: None")  # noqa: S307  # Names of this test.
    return type("Base", (), methods)


def engine(**changed: object) -> SimpleNamespace:
    """The configuration of an engine that is served."""
    return SimpleNamespace(
        kv_transfer_config=SimpleNamespace(
            kv_role=changed.get("kv_role", "kv_both"), kv_load_failure_policy="recompute"
        ),
        cache_config=SimpleNamespace(
            enable_prefix_caching=changed.get("prefixes", True), block_size=16
        ),
        parallel_config=SimpleNamespace(
            pipeline_parallel_size=changed.get("pipeline", 1),
            decode_context_parallel_size=changed.get("dcp", 1),
            prefill_context_parallel_size=changed.get("pcp", 1),
        ),
        model_config=SimpleNamespace(enable_sleep_mode=changed.get("sleeps", False)),
        speculative_config=changed.get("drafts"),
    )


def spec(kind: str, **fields: object) -> SimpleNamespace:
    """A layer of a class of vLLM's."""
    made: type[SimpleNamespace] = type(kind, (SimpleNamespace,), {})
    return made(**{"block_size": 16, "page_size_bytes": 64, **fields})


def caches(*specs: SimpleNamespace, **fields: object) -> SimpleNamespace:
    """A cache with a group for each layer."""
    groups = [
        SimpleNamespace(layer_names=[f"layer {at}"], kv_cache_spec=each)
        for at, each in enumerate(specs)
    ]
    return SimpleNamespace(kv_cache_groups=groups, **fields)


def test_interface_of_the_release_is_taken() -> None:
    """The interface that the connector is made for passes."""
    check_interface(interface({}))


@pytest.mark.parametrize("name", PARAMETERS)
def test_other_interface_is_refused(name: str) -> None:
    """A method that is missing, or is given something else, is named."""
    with pytest.raises(ValueError, match=f"{name} is missing|{name} takes"):
        check_interface(interface({name: ("something",)}))
    if name != "__init__":
        with pytest.raises(ValueError, match=f"{name} is missing"):
            check_interface(interface({name: None}))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"kv_role": "kv_producer"}, "kv_role kv_producer"),
        ({"prefixes": False}, "prefix caching"),
        ({"pipeline": 2}, "--pipeline-parallel-size"),
        ({"sleeps": True}, "sleep mode"),
        ({"dcp": 2}, "--decode-context-parallel-size"),
        ({"pcp": 2}, "--prefill-context-parallel-size"),
        ({"drafts": SimpleNamespace(method="eagle")}, "speculative decoding by eagle"),
    ],
)
def test_engine_that_is_not_served_is_refused(changed: dict[str, object], words: str) -> None:
    """The sentence names what asks for it, and what to do."""
    with pytest.raises(ValueError, match=words):
        check_engine(engine(**changed))


def test_engine_that_is_served_starts() -> None:
    """Nothing is refused of a plain engine, with n-gram drafts or without."""
    check_engine(engine())
    check_engine(engine(drafts=SimpleNamespace(method="ngram")))


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (caches(spec("MambaSpec")), "layers of MambaSpec"),
        (caches(spec("FullAttentionSpec"), spec("FullAttentionSpec", block_size=32)), "16 and 32"),
        (caches(spec("SlidingWindowSpec", sliding_window=8)), "without full attention"),
        (
            caches(
                spec("FullAttentionSpec"),
                spec("SlidingWindowSpec", sliding_window=8),
                spec("SlidingWindowSpec", sliding_window=9),
            ),
            "windows of several sizes",
        ),
        (caches(spec("FullAttentionSpec"), hash_block_size=8), "hashes of 8 tokens"),
    ],
)
def test_layers_that_are_not_served_are_refused(refused: SimpleNamespace, words: str) -> None:
    """The sentence names the layers."""
    with pytest.raises(ValueError, match=words):
        engine_groups(engine(), refused)


def test_groups_have_their_layers_pages_and_windows() -> None:
    """Full attention and a window; a group of several specs has the bytes of all."""
    uniform = spec("UniformTypeKVCacheSpecs", page_size_bytes=96)
    uniform.kv_cache_specs = {"a": spec("FullAttentionSpec"), "b": spec("MLAAttentionSpec")}
    full, window = engine_groups(
        engine(), caches(uniform, spec("SlidingWindowSpec", sliding_window=8))
    )
    assert (full.page_bytes, full.pages.window_tokens) == (96, None)
    assert (window.page_bytes, window.pages.window_tokens) == (64, 8)
    assert window.layers == ("layer 1",)
