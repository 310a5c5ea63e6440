"""The attention of new tokens is that of the whole prompt, where new tokens are looked at."""

from __future__ import annotations

import pytest
import torch

from kvcanon.lab.servers.short_attention import attend_new_tokens

HEADS, KV_HEADS, SIZE = 4, 2, 8


def whole(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, window: int
) -> torch.Tensor:
    """The attention of every token of one prompt, by the definition; window -1 for none."""
    length = len(query)
    found = torch.zeros(length, HEADS, SIZE)
    for place in range(length):
        first = 0 if window < 0 else max(0, place - window)
        for head in range(HEADS):
            shared = head * KV_HEADS // HEADS
            scores = keys[first : place + 1, shared] @ query[place, head] * 0.3
            found[place, head] = scores.softmax(0) @ values[first : place + 1, shared]
    return found


@pytest.mark.parametrize("window", [None, -1, 2])
def test_new_tokens_attend_as_in_the_whole_prompt(window: int | None) -> None:
    """Two prompts of a batch, with another cached prefix each, in slots in no order."""
    draw = torch.Generator().manual_seed(0)
    lengths, new = [7, 5], [3, 5]
    keys, values = (torch.randn(40, KV_HEADS, SIZE, generator=draw) for _ in range(2))
    slots = torch.randperm(40, generator=draw)
    table = torch.zeros(4, 20, dtype=torch.int64)
    table[3, :7], table[1, :5] = slots[:7], slots[7:12]
    asked = [torch.randn(length, HEADS, SIZE, generator=draw) for length in lengths]
    output = torch.zeros(sum(new), HEADS, SIZE)
    rows = torch.tensor([3, 1])
    attend_new_tokens(
        None,
        torch.cat([each[-count:] for each, count in zip(asked, new, strict=True)]),
        *(output, keys, values, table, rows, torch.tensor(lengths)),
        *(torch.tensor([4, 0]), torch.tensor(new)),
        scaling=0.3,
        enable_gqa=True,
        causal=True,
        sliding_window_size=window,
    )
    parts = (output[: new[0]], output[new[0] :])
    for row, query, found in zip(rows.tolist(), asked, parts, strict=True):
        prompt = table[row, : len(query)]
        right = whole(query, keys[prompt], values[prompt], window or -1)
        torch.testing.assert_close(found, right[-len(found) :])


def test_other_attention_is_refused() -> None:
    """Encoders and cross attention are not computed wrong in silence."""
    nothing = torch.zeros(0)
    with pytest.raises(NotImplementedError, match="causal"):
        attend_new_tokens(None, *(nothing,) * 9, causal=False)
