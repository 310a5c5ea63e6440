"""A real vLLM engine on a machine without a GPU, with a host tier; vLLM's environment runs it.

It serves prompts that share beginnings and exceed the device, compares each reply with that of
transformers, and prints what it served as JSON. Between its start and the first prompt it waits for
a line, so that a watch can begin.
"""

from __future__ import annotations

import json
import os
import random
import sys

os.environ |= {
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}

import torch
import transformers
from vllm import LLM, SamplingParams
from vllm.config import KVEventsConfig, KVTransferConfig

import vllm_offloading

VOCABULARY, CONTEXT, BLOCK = 320, 384, 32
DEVICE_BLOCKS = 14
HOST_BYTES = 1 << 20
PROMPTS, REPLY = 24, 8


def prompts() -> list[list[int]]:
    """Prompts of which half begin alike and half continue an earlier one."""
    drawn = random.Random(1)

    def tokens(count: int) -> list[int]:
        return [drawn.randrange(3, VOCABULARY) for _ in range(count)]

    system, made = tokens(3 * BLOCK), list[list[int]]()
    for number in range(PROMPTS):
        before = drawn.choice(made) if number % 2 else system
        made.append((before[: drawn.randrange(BLOCK, 200)] + tokens(drawn.randrange(1, 150)))[:300])
    return made


def tell(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """Serve."""
    folder, port, replay_port, describing = sys.argv[1:]
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        num_hidden_layers=2,
        max_position_embeddings=CONTEXT,
        initializer_range=0.4,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    model.save_pretrained(folder)
    offloading = {
        "spec_name": "IndexSpec",
        "spec_module_path": vllm_offloading.__name__,
        "cpu_bytes_to_use": HOST_BYTES,
        "self_describing_kv_events": describing == "yes",
    }
    engine = LLM(
        model=folder,
        dtype="float32",
        enforce_eager=True,
        max_model_len=CONTEXT,
        block_size=BLOCK,
        num_gpu_blocks_override=DEVICE_BLOCKS,
        max_num_seqs=4,
        skip_tokenizer_init=True,
        kv_transfer_config=KVTransferConfig(
            kv_connector="OffloadingConnector",
            kv_role="kv_both",
            kv_connector_extra_config=offloading,
        ),
        kv_events_config=KVEventsConfig(
            enable_kv_cache_events=True,
            publisher="zmq",
            endpoint=f"tcp://*:{port}",
            replay_endpoint=f"tcp://*:{replay_port}",
            topic="kv",
        ),
    )
    tell("ready")
    sys.stdin.readline()
    right = cached = 0
    greedy = SamplingParams(temperature=0, max_tokens=REPLY, ignore_eos=True, detokenize=False)
    for prompt in prompts():
        (reply,) = engine.generate({"prompt_token_ids": prompt}, greedy, use_tqdm=False)
        with torch.inference_mode():
            known = model.generate(
                torch.tensor([prompt]), max_new_tokens=REPLY, do_sample=False, pad_token_id=0
            )
        right += list(reply.outputs[0].token_ids) == known[0, len(prompt) :].tolist()
        cached += reply.num_cached_tokens
    (judged,) = vllm_offloading.MADE
    told = {"right": right, "cached": cached, "calls": judged.calls, "broken": judged.broken}
    tell(json.dumps(told))
    # The last events are on their way until the watch has ended.
    sys.stdin.readline()


if __name__ == "__main__":
    main()
