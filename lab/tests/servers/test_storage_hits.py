"""What a run over SGLang's storage calls wrong."""

from __future__ import annotations

from attrs import evolve

from kvcanon.lab.servers.storage_hits import (
    AT_ONCE,
    WAIT,
    Replies,
    StorageReply,
    StorageRequest,
    compared,
    drawn,
    judged,
)

REQUESTS = {
    "first": StorageRequest("first", (1, 2), expected=(3, 4)),
    "second": StorageRequest("second", (5, 6), expected=(7,)),
}
RIGHT = {
    "first": StorageReply((3, 4, 9), device=0, host=0, storage=8),
    "second": StorageReply((7, 8, 9), device=4, host=4, storage=0),
}


def wrong_of(replies: Replies) -> list[str]:
    """What is wrong with replies."""
    return judged("full kvcanon", replies, REQUESTS, lambda _: None)


def test_wrong_replies_and_storage_in_vain_are_found() -> None:
    """A reply is compared as far as the model's next token is certain."""
    assert wrong_of({"written": RIGHT, WAIT: RIGHT, AT_ONCE: RIGHT}) == []
    other = {**RIGHT, "second": evolve(RIGHT["second"], tokens=(8, 8, 9))}
    assert wrong_of({WAIT: other}) == ["full kvcanon wait_complete: the reply to 'second' is wrong"]
    nothing = {name: evolve(reply, storage=0) for name, reply in RIGHT.items()}
    assert wrong_of({"written": nothing}) == []
    assert wrong_of({AT_ONCE: nothing}) == [
        "full kvcanon best_effort: nothing was found in storage"
    ]


def test_each_request_must_find_as_much_in_each_place() -> None:
    """Tokens of replies are compared with the model's, and not here."""
    alike = {**RIGHT, "first": evolve(RIGHT["first"], tokens=(3, 4, 8))}
    assert compared("full", {WAIT: RIGHT}, {WAIT: alike}) == []
    fewer = {**RIGHT, "first": evolve(RIGHT["first"], storage=4, host=4)}
    assert compared("full", {AT_ONCE: fewer}, {AT_ONCE: RIGHT}) == []
    (words,) = compared("full", {WAIT: fewer}, {WAIT: RIGHT})
    assert words.startswith("full wait_complete 'first': kvcanon StorageReply(")


def test_prompts_begin_as_those_that_are_written() -> None:
    """And some do not, or have another salt; a seed draws the same again."""
    written, read = drawn(3)
    assert drawn(3) == (written, read)
    assert drawn(4) != (written, read)
    beginnings = {(each.tokens[:12], each.salt) for each in written}
    shared = [each.name for each in read if (each.tokens[:12], each.salt) in beginnings]
    assert len(shared) == 7
    assert {"unknown", "other salt", "no salt"}.isdisjoint(shared)
