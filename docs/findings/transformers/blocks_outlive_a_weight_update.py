"""transformers answers from blocks that were computed before the model's weights changed."""

import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.generation.configuration_utils import ContinuousBatchingConfig, GenerationConfig

PROMPT = list(range(1, 41))
SIZES = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 2, "num_key_value_heads": 2}
GREEDY = GenerationConfig(max_new_tokens=12, do_sample=False, eos_token_id=-1, pad_token_id=0)
BATCHING = ContinuousBatchingConfig(
    page_size=8, num_blocks=64, max_batch_tokens=64, use_cuda_graph=False, use_async_batching=False
)


def model_of(seed: int) -> LlamaForCausalLM:
    """A small model with random weights of this seed."""
    torch.manual_seed(seed)
    config = LlamaConfig(**SIZES, **HEADS, vocab_size=128, initializer_range=0.5)
    return LlamaForCausalLM(config).eval()


def answer(model: LlamaForCausalLM) -> list[int]:
    """The tokens behind the prompt; the manager, with its cache, is kept for the next session."""
    found = model.generate_batch(
        [PROMPT],
        generation_config=GREEDY,
        continuous_batching_config=BATCHING,
        persistent_manager=True,
        progress_bar=False,
    )
    return next(iter(found.values())).generated_tokens


model = model_of(seed=1)
print("weights 1:              ", answer(model))
model.load_state_dict(model_of(seed=2).state_dict())
updated = answer(model)
print("weights 2, by an update:", updated)
right = answer(model_of(seed=2))
print("weights 2, from afresh: ", right)
sys.exit(0 if updated == right else 1)
