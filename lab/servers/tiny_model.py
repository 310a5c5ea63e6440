"""Tiny models with random weights, and their greedy continuations by transformers.

The weights have a large deviation, so that greedy tokens vary and depend on the whole prompt. A
continuation is computed without a KV cache, one whole forward pass a token, so that it does not
depend on anything that is judged.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from attrs import frozen

from kvcanon.conformance.errors import UsageError
from kvcanon.lab.servers.script import Tokens

FULL_MODEL = "full"
SLIDING_MODEL = "sliding"
MODELS = (FULL_MODEL, SLIDING_MODEL)
WIDE_MODEL = "wide"
"""As the full one, with heads of a size that vLLM has kernels for on a CPU."""
VOCABULARY = 320
CONTEXT = 640
"""The most tokens of a prompt and its continuation."""
WINDOW = 16
"""The tokens that a sliding layer attends to, its own included."""
CLOSE_CALL = 1e-3
"""Logits nearer than this may be ordered otherwise by another order of the same sums."""

_SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "initializer_range": 0.4,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": None,
}

_WIDE = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32}


class Logits(Protocol):
    """The methods of a torch tensor that are used here."""

    def topk(self, count: int) -> tuple[Logits, Logits]:
        """The largest values and where they are."""

    def tolist(self) -> list[float]:
        """The numbers of a tensor of one dimension."""

    def __getitem__(self, index: object) -> Logits: ...


class TinyModel(Protocol):
    """A model of transformers."""

    def __call__(self, *, input_ids: object, use_cache: bool) -> object:
        """One forward pass; the result has `logits`."""

    def eval(self) -> object:
        """Switch off what is for training."""

    def save_pretrained(self, folder: Path) -> object:
        """Save the weights."""


def make_model(name: str, seed: int, context: int = CONTEXT) -> TinyModel:
    """Make one of `MODELS` or `WIDE_MODEL` with random weights. Raises: UsageError.

    `context` is the most tokens of a prompt and its continuation.
    """
    try:
        torch, transformers = import_module("torch"), import_module("transformers")
    except ModuleNotFoundError as error:
        raise UsageError(
            f"a server's environment is needed: {error}; run `make engine`, which makes one"
        ) from error
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    of_all = _SHAPE | {"max_position_embeddings": context}
    if name in {FULL_MODEL, WIDE_MODEL}:
        shape = of_all | (_WIDE if name == WIDE_MODEL else {})
        config = transformers.LlamaConfig(**shape, num_hidden_layers=2)
        made = transformers.LlamaForCausalLM(config)
    else:
        layers = ["full_attention", "sliding_attention"] * 2
        config = transformers.MellumConfig(
            **of_all,
            num_hidden_layers=len(layers),
            layer_types=layers,
            mlp_layer_types=["dense"] * len(layers),
            sliding_window=WINDOW,
        )
        made = transformers.MellumForCausalLM(config)
    made.eval()
    return cast("TinyModel", made)


@frozen
class GreedyOracle:
    """Continues prompts greedily, by transformers."""

    model: TinyModel

    def __call__(self, tokens: Tokens, count: int) -> Tokens:
        """Up to `count` tokens that follow a prompt; fewer if the next one is a close call."""
        torch = import_module("torch")
        known = list(tokens)
        with torch.inference_mode():
            for _ in range(count):
                result = self.model(input_ids=torch.tensor([known]), use_cache=False)
                logits: Logits = result.logits  # type: ignore[attr-defined]
                values, places = logits[0, -1].topk(2)
                first, second = values.tolist()
                if first - second < CLOSE_CALL:
                    break
                known.append(int(places.tolist()[0]))
        return tuple(known[len(tokens) :])
