"""Attention of the new tokens of a prompt alone, for servers without a GPU that are under load.

SGLang's `torch_native` backend computes the attention of the whole prompt, and keeps that of its
new tokens. Where a long prefix is cached that takes longer than all else.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def attend_new_tokens(  # noqa: PLR0917  # The parameters are SGLang's.
    self: object,
    query: Any,  # noqa: ANN401  # Tensors have no types here.
    output: Any,  # noqa: ANN401
    k_cache: Any,  # noqa: ANN401
    v_cache: Any,  # noqa: ANN401
    req_to_token: Any,  # noqa: ANN401
    req_pool_indices: Any,  # noqa: ANN401
    seq_lens: Any,  # noqa: ANN401
    extend_prefix_lens: Any,  # noqa: ANN401
    extend_seq_lens: Any,  # noqa: ANN401
    encoder_lens: object = None,
    scaling: float | None = None,
    enable_gqa: bool = False,
    causal: bool = False,
    is_cross_attn: bool = False,
    sliding_window_size: int | None = None,
) -> Any:  # noqa: ANN401
    """Write the attention of each prompt's new tokens to `output`, instead of SGLang's method."""
    del self, extend_prefix_lens
    if encoder_lens is not None or is_cross_attn or not causal:
        raise NotImplementedError("only causal attention of a decoder is measured")
    torch = import_module("torch")
    attend = torch.nn.functional.scaled_dot_product_attention
    begin = 0
    batch = (req_pool_indices.tolist(), seq_lens.tolist(), extend_seq_lens.tolist())
    for row, length, new in zip(*batch, strict=True):
        slots, here = req_to_token[row, :length], slice(begin, begin + new)
        places = torch.arange(length)
        asked = places[length - new :, None]
        seen = places <= asked
        if sliding_window_size is not None and sliding_window_size >= 0:
            seen &= places >= asked - sliding_window_size
        heads = (
            each.transpose(0, 1)[None] for each in (query[here], k_cache[slots], v_cache[slots])
        )
        found = attend(*heads, attn_mask=seen, scale=scaling, enable_gqa=enable_gqa)
        output[here] = found[0].transpose(0, 1)
        begin += new
    return output
