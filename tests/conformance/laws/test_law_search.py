"""Law search: what a user sees, in the words of engines, leads to the laws."""

from __future__ import annotations

import pytest

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.laws.law_search import MOST_LAWS, MOST_SYMPTOMS, search_laws


@pytest.mark.parametrize(
    ("words", "seen", "law_id"),
    [
        ("my window data is gone after a split", "My window data is gone after a split", "MATCH-5"),
        ("swa missing, node was split", "My window data is gone after a split", "MATCH-6"),
        ("blocks leak", "The pool leaks: it shrinks until nothing is admitted", "ALLOC-8"),
        ("double free", "A block is freed twice (double free)", "ALLOC-1"),
        ("negative lock_ref", "A lock count is negative, or an assertion about it fails", "LOCK-1"),
        ("garbage after offload", "Wrong tokens after KV came back from the host", "DATA-1"),
        ("tenants share pages", "One tenant or LoRA adapter gets another's KV", "NS-3"),
        ("preemption", "Wrong tokens after a request was preempted and came back", "LOCK-4"),
        ("lease expired", "A prefix is never evicted after its request was aborted", "LOCK-3"),
        ("speculative decoding draft", "Wrong tokens with speculative decoding", "MATCH-3"),
        (
            "LoRA switched",
            "Stale KV is served after the weights changed, or a LoRA adapter was switched",
            "ALLOC-7",
        ),
        (
            "stale weights after update",
            "Stale KV is served after the weights changed, or a LoRA adapter was switched",
            "ALLOC-7",
        ),
        ("storage", "Wrong tokens after KV came from a storage", "RES-9"),
        (
            "BlockRemoved before BlockStored",
            "The router forgets a prompt while its pages move between device and host",
            "EVENT-14",
        ),
    ],
)
def test_symptom_in_the_words_of_an_engine_is_first(words: str, seen: str, law_id: str) -> None:
    """The first symptom is the one that is meant, and names the law."""
    first = search_laws(words).symptoms[0]
    assert first.seen == seen
    assert law_id in first.laws


@pytest.mark.parametrize(
    ("words", "law_id"),
    [
        ("priority ignored", "REC-6"),
        ("MATCH-7", "MATCH-7"),
        ("quota of a load", "LOAD-6"),
        ("duplicates on the host", "EVICT-7"),
    ],
)
def test_law_is_found_by_its_text(words: str, law_id: str) -> None:
    """A law that no symptom names is found by its statement, its faults or its id."""
    assert search_laws(words).laws[0].law_id == law_id


def test_rare_words_count_more_than_common_ones() -> None:
    """A word that many laws have does not push aside the one word that few have."""
    assert search_laws("pages nodes slots quota").laws[0].law_id == "LOAD-6"


def test_no_law_is_named_twice_and_answers_are_short() -> None:
    """Laws of the symptoms are not listed again, and both lists have a limit."""
    found = search_laws("page node slot window lock host evict")
    named = {law_id for each in found.symptoms for law_id in each.laws}
    assert named.isdisjoint(law.law_id for law in found.laws)
    assert len(found.symptoms) <= MOST_SYMPTOMS
    assert len(found.laws) == MOST_LAWS


def test_unknown_words_find_nothing() -> None:
    """Words that no law has find no law."""
    found = search_laws("xyzzy")
    assert (list(found.symptoms), list(found.laws)) == ([], [])


@pytest.mark.parametrize("words", ["", "  ", "the of a", "?!"])
def test_no_word_is_refused(words: str) -> None:
    """Without a word that says something there is nothing to look for."""
    with pytest.raises(UsageError, match="no word to look for"):
        search_laws(words)
