"""Serve three conversations that begin alike, with too few slots for all, and check every bit.

python docs/examples/decoder/serve.py
"""

from __future__ import annotations

import random

import torch

from kvcanon.optimized.threaded_engine import ThreadedEngine
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import Counts, WritePolicy
from model import Decoder, Shape
from plain import plain_logits
from request import Request
from scheduler import Scheduler

CONVERSATIONS, TURNS, QUESTION_TOKENS, ANSWER_TOKENS = 3, 3, 14, 18


def cache_config(shape: Shape) -> CacheConfig:
    """A cache with slots for about one conversation on the device, and for all on the host."""
    return CacheConfig(
        page_size=shape.page_size,
        window_tokens=shape.window_tokens,
        device_slots=Counts(full=40, swa=20),
        host_slots=Counts(full=200, swa=200),
        write_policy=WritePolicy.WRITE_THROUGH,
        events=False,  # No router listens here, and events would wait for ever.
    )


def equal_bits(decoder: Decoder, request: Request) -> bool:
    """Whether a request's logits are those that the decoder has without any cache."""
    expected = plain_logits(decoder, request.tokens)
    return all(torch.equal(expected[at], logits) for at, logits in request.logits.items())


def main() -> None:
    """Serve the conversations turn by turn, side by side."""
    torch.set_num_threads(1)
    decoder, drawn = Decoder(Shape()), random.Random(0)

    def words(count: int) -> list[int]:
        return [drawn.randrange(decoder.shape.vocabulary) for _ in range(count)]

    system_prompt = words(22)
    conversations = [system_prompt] * CONVERSATIONS
    with ThreadedEngine() as transfers:
        scheduler = Scheduler(decoder, cache_config(decoder.shape), transfers)
        for turn in range(TURNS):
            requests = [
                scheduler.submit(tokens + words(QUESTION_TOKENS), ANSWER_TOKENS)
                for tokens in conversations
            ]
            scheduler.run()
            for number, request in enumerate(requests):
                print(
                    f"turn {turn}, conversation {number}: {len(request.tokens)} tokens, "
                    f"{request.reused_pages} pages reused, {request.loaded_pages} of them loaded"
                )
                if not equal_bits(decoder, request):
                    raise SystemExit("some bits are not those that the decoder has without a cache")
            conversations = [request.tokens for request in requests]
    print("Every bit is the one that the decoder has without a cache.")


if __name__ == "__main__":
    main()
