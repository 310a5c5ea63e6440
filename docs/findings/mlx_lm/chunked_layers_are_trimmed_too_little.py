"""mlx-lm 0.32.2: Llama 4 continues a cached prefix from a wrong position, and with wrong tokens.

    python chunked_layers_are_trimmed_too_little.py

It ends with exit code 1 where the fault shows. It uses a tiny random model, and needs no GPU.
"""

import sys

import mlx.core as mx
from mlx_lm.models.cache import LRUPromptCache, make_prompt_cache
from mlx_lm.models.llama4 import Model, ModelArgs

CHUNK_TOKENS = 8  # Llama 4 has 8192.
TEXT = {
    "attention_bias": False,
    "attention_chunk_size": CHUNK_TOKENS,
    "head_dim": 8,
    "hidden_size": 16,
    "interleave_moe_layer_step": 2,
    "intermediate_size": 16,
    "intermediate_size_mlp": 16,
    "max_position_embeddings": 64,
    "model_type": "llama4_text",
    "num_attention_heads": 2,
    "num_experts_per_tok": 1,
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "num_local_experts": 2,
    "rms_norm_eps": 1e-5,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "use_qk_norm": False,
    "vocab_size": 32,
}


def next_logits(model, tokens, cache):
    for token in tokens:
        logits = model(mx.array([[token]]), cache=cache)
    return logits[0, -1]


mx.random.seed(0)
model = Model(ModelArgs(text_config=TEXT, model_type="llama4"))
mx.eval(model.parameters())
prompts = LRUPromptCache()

# A prompt of three chunks is served and cached.
long = [1 + at % 20 for at in range(3 * CHUNK_TOKENS)]
cache = make_prompt_cache(model)
next_logits(model, long, cache)
prompts.insert_cache("llama4", long, cache)

# The next prompt shares its first six tokens.
prompt = [*long[:6], 30]
found, rest = prompts.fetch_nearest_cache("llama4", prompt)
offsets = [layer.offset for layer in found] if found is not None else []
print(f"{len(prompt) - len(rest)} tokens are said to be cached; the layers have {offsets}")
with_cache = next_logits(model, rest, found or make_prompt_cache(model))
without = next_logits(model, prompt, make_prompt_cache(model))
difference = mx.abs(with_cache - without).max().item()
tokens = [logits.argmax().item() for logits in (with_cache, without)]
print(f"next token with the cache: {tokens[0]}, without: {tokens[1]}")
print(f"largest difference of a logit: {difference:.3f}")
sys.exit(difference > 1e-3)
