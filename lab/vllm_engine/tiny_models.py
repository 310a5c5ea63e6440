"""Tiny models with random weights, of shapes that vLLM has kernels for on a CPU."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

VOCABULARY = 320
WINDOW_TOKENS = 64
FULL, WINDOW = "full", "window"
MODELS = (FULL, WINDOW)

_SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 1024,
    # Large, so that greedy tokens vary and depend on the whole prompt.
    "initializer_range": 0.4,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": None,
}


def save_model(name: str, seed: int, folder: Path) -> None:
    """Save a model: a Llama of two layers, or a Gemma 3 whose every other layer has a window."""
    torch, transformers = import_module("torch"), import_module("transformers")
    torch.manual_seed(seed)
    if name == FULL:
        config = transformers.LlamaConfig(**_SHAPE, num_hidden_layers=2)
        model = transformers.LlamaForCausalLM(config)
    else:
        config = transformers.Gemma3TextConfig(
            **_SHAPE,
            num_hidden_layers=4,
            layer_types=["full_attention", "sliding_attention"] * 2,
            sliding_window=WINDOW_TOKENS,
            query_pre_attn_scalar=32,
        )
        model = transformers.Gemma3ForCausalLM(config)
    model.save_pretrained(folder)
