"""The decoder of docs/examples: its logits have the same bits whatever it reuses on the device.

Each test serves requests through the fast cache and shows, by counters, that the kind of reuse that
it is about took place. Then it compares every logit with those of the same decoder without a cache.
Free slots hold NaN meanwhile, so that a read of one shows.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from example_decoder import (
    COMPONENTS,
    DECODER,
    PAGE,
    SHAPE,
    WINDOW_PAGES,
    check,
    counters,
    expected_logits,
    free_slots,
    make,
    serve,
    serve_one,
    spoil_free_slots,
    words,
)
from kvcanon.optimized.threaded_engine import ThreadedEngine
from kvcanon.spec.types import FULL, SWA, Namespace
from model import Decoder, Shape
from plain import PlainMemory, plain_logits
from serve import main

pytestmark = pytest.mark.usefixtures("_one_thread")


def test_bits_do_not_depend_on_what_is_computed_at_once() -> None:
    """A position has the same bits whether its page is computed at once or token by token."""
    tokens, memory = words(1, 90), PlainMemory(SHAPE)
    one_by_one = [DECODER.forward([token], at, memory) for at, token in enumerate(tokens)]
    assert torch.equal(torch.cat(one_by_one), expected_logits(tuple(tokens)))


def test_bits_do_depend_on_the_shape_of_a_batch() -> None:
    """Batches of another shape give other bits, so the care that the example takes is needed."""
    tokens = words(1, 90)
    other = plain_logits(Decoder(Shape(page_size=1)), tokens)
    expected = expected_logits(tuple(tokens))
    assert not torch.equal(other, expected)
    torch.testing.assert_close(other, expected, rtol=1e-4, atol=1e-4)


def test_script(capsys: pytest.CaptureFixture[str]) -> None:
    """The script runs, reuses pages in every later turn, and loads some from the host."""
    main()
    *turns, last = capsys.readouterr().out.splitlines()
    assert last == "Every bit is the one that the decoder has without a cache."
    assert len(turns) == 9
    assert all(" 0 pages reused" in line for line in turns[:3])
    assert all(" 0 pages reused" not in line for line in turns[3:])
    assert any(" 0 of them loaded" not in line for line in turns)


def test_device_hit(transfers: ThreadedEngine) -> None:
    """A cached prompt gives the same answer, with the same bits, as one that is not cached."""
    scheduler = make(transfers)
    first = serve_one(scheduler, words(1, 30), answer=6)
    again = serve_one(scheduler, words(1, 30), answer=6)
    goes_on = serve_one(scheduler, first.tokens + words(2, 9), answer=4)
    assert (first.reused_pages, again.reused_pages) == (0, 30 // PAGE)
    assert goes_on.reused_pages == (len(first.tokens) - 1) // PAGE
    assert again.tokens == first.tokens
    check(scheduler, first, again, goes_on)


def test_prompt_that_is_cached_to_its_end(transfers: ThreadedEngine) -> None:
    """Of a wholly cached prompt the last page is computed again, for the logits to go on from."""
    scheduler = make(transfers)
    first = serve_one(scheduler, words(1, 8 * PAGE))
    again = serve_one(scheduler, words(1, 8 * PAGE))
    assert again.reused_pages == 7
    check(scheduler, first, again)


def test_tombstones_before_the_window(transfers: ThreadedEngine) -> None:
    """A prefix is reused though window data before its window has left."""
    scheduler = make(transfers)
    first = serve_one(scheduler, words(1, 60), answer=4)
    free_full = len(free_slots(scheduler, FULL))
    freed = scheduler.cache.evict(0, 200 - len(free_slots(scheduler, SWA)) - WINDOW_PAGES)
    assert freed[0] == 0 < freed[1]
    assert len(free_slots(scheduler, FULL)) == free_full
    key = np.array(first.tokens, dtype=np.int32)
    found = scheduler.cache.match(key)
    assert len(found.swa) < found.device_pages == len(found.full)

    goes_on = serve_one(scheduler, first.tokens + words(2, 7))
    assert goes_on.reused_pages == found.device_pages
    check(scheduler, first, goes_on)


def test_tombstone_in_the_window_is_computed_again_and_healed(transfers: ThreadedEngine) -> None:
    """A prefix without window data at its end is computed again, and reused once it is healed."""
    scheduler = make(transfers)
    stem = words(1, 32)
    served = serve(scheduler, stem + words(2, 13), stem + words(3, 13))
    # Recently used or not: what is below the stem has window data that was used later.
    swa_used = 200 - len(free_slots(scheduler, SWA))
    freed = scheduler.cache.evict(0, swa_used - 2 * (WINDOW_PAGES + 1))
    assert freed[0] == 0 < freed[1]

    missed = serve_one(scheduler, stem + words(4, 9))
    assert missed.reused_pages == 0
    # Those that two computed at the same time, and those that were computed again now.
    assert counters(scheduler)["duplicate_pages"] == 2 * (len(stem) // PAGE)
    healed = serve_one(scheduler, stem + words(5, 9))
    assert healed.reused_pages == len(stem) // PAGE
    check(scheduler, *served, missed, healed)


def test_split(transfers: ThreadedEngine) -> None:
    """Two conversations that part inside a node share its beginning only."""
    scheduler = make(transfers)
    stem = words(1, 30)
    first = serve_one(scheduler, stem + words(2, 24))
    nodes = len(scheduler.cache.tree.nodes())
    scheduler.cache.match(np.array(stem, dtype=np.int32))
    assert len(scheduler.cache.tree.nodes()) == nodes + 1
    second = serve_one(scheduler, stem + words(3, 24))
    assert second.reused_pages == len(stem) // PAGE
    again = serve(scheduler, first.tokens + words(4, 5), second.tokens + words(5, 5))
    assert all(request.reused_pages > len(stem) // PAGE for request in again)
    check(scheduler, first, second, *again)


def test_concurrent_conversations_share(transfers: ThreadedEngine) -> None:
    """Requests that compute the same pages at once end up with the same slots for them."""
    scheduler = make(transfers, running_requests=3)
    stem = words(1, 18)
    served = serve(scheduler, *(stem + words(seed, 11 + seed) for seed in range(6)), answer=12)
    assert [request.reused_pages for request in served[:3]] == [0, 0, 0]
    assert counters(scheduler)["duplicate_pages"] == 2 * (len(stem) // PAGE)
    assert all(request.reused_pages >= len(stem) // PAGE for request in served[3:])
    check(scheduler, *served)


def test_namespaces_share_nothing(transfers: ThreadedEngine) -> None:
    """A prompt in another namespace reuses nothing."""
    scheduler = make(transfers)
    first = serve_one(scheduler, words(1, 30))
    other = scheduler.submit(words(1, 30), 3, Namespace(extra_key="other"))
    scheduler.run()
    assert other.reused_pages == 0
    check(scheduler, first, other)


def test_window_is_passed_while_decoding(transfers: ThreadedEngine) -> None:
    """A long answer gives back the window slots that it has passed, and keeps the others."""
    scheduler = make(transfers)
    request = scheduler.submit(words(1, 20), 40)
    held_swa = list[int]()
    while scheduler.waiting or scheduler.running:
        spoil_free_slots(scheduler)
        scheduler.step()
        if request.computed_tokens > 20 + SHAPE.window_tokens:
            evictable, protected = scheduler.cache.tree.usage(COMPONENTS.index(SWA))
            assert (evictable, protected) == (20 // PAGE, 0) or request.done
            held_swa.append(200 - len(free_slots(scheduler, SWA)) - evictable)
            assert (
                scheduler.cache.tree.usage(COMPONENTS.index(FULL))[1] == 20 // PAGE or request.done
            )
    assert max(held_swa[:-1]) == WINDOW_PAGES + 1
    goes_on = serve_one(scheduler, request.tokens + words(2, 6))
    assert goes_on.reused_pages == (len(request.tokens) - 1) // PAGE
    check(scheduler, request, goes_on)


@pytest.mark.parametrize(("prompt", "answer"), [([], 3), ([1, 2], 0), ([1] * 510, 3)])
def test_request_that_makes_no_sense_is_refused(
    transfers: ThreadedEngine, prompt: list[int], answer: int
) -> None:
    """A request without tokens, or with too many, is refused."""
    with pytest.raises(ValueError, match="cannot be served"):
        make(transfers).submit(prompt, answer)
