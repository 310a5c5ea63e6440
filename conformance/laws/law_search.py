"""Law search: the symptoms and laws that some words are about, for `kvcanon laws --about`.

A law is found by its text and by the faults that its witnesses show. Words of engines are looked
for under ours, too: a block is a page here, and a split is a cut.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import log
from typing import TypeVar

from attrs import frozen

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.laws.symptoms import Symptom, symptoms
from kvcanon.conformance.vectors import read_vectors
from kvcanon.spec.law import LAWS, Law

OURS: Mapping[str, str] = {
    "allocator": "allocate",
    "block": "page",
    "cpu": "host",
    "double": "twice",
    "gpu": "device",
    "missing": "lost",
    "gone": "lost",
    "offload": "backup",
    "onboard": "load",
    "pin": "lock",
    "recurrent": "mamba",
    "refcount": "lock",
    "sliding": "window",
    "split": "cut",
    "ssm": "mamba",
    "swa": "window",
    "tenant": "namespace",
    "two": "twice",
    "unlock": "release",
}
"""Words of engines and their users, and the word that a law has for it."""
SMALL = frozenset(
    re.findall(
        r"\w+",
        "a after all an and are as at be before but by do does for from has have in into is it its "
        "kv my no not of on one or that the their then there this to too was were when while will "
        "with",
    )
)
"""Words that say nothing about a law."""
MIN_STEM = 3
"""The fewest letters that a word keeps without its ending."""
HALF = 0.5
"""The share of the words, by what they say, that a symptom must have."""
MOST_SYMPTOMS, MOST_LAWS = 3, 6

Name = TypeVar("Name", int, str)


@frozen
class Found:
    """What some words are about, the best first."""

    symptoms: Sequence[Symptom]
    laws: Sequence[Law]
    """Laws with these words, without those of the symptoms."""


@frozen
class _Text:
    """A text to search, in three parts."""

    head: frozenset[str]
    faults: frozenset[str]
    rest: frozenset[str]

    def score(self, asked: Mapping[str, float]) -> float:
        """How many of the words it has; words of the head count most."""
        places = ((3, self.head), (2, self.faults), (1, self.rest))
        return sum(
            worth * max((weight for weight, stems in places if stem in stems), default=0)
            for stem, worth in asked.items()
        )


def search_laws(words: str) -> Found:
    """The symptoms and laws that some words are about. Raises: UsageError."""
    stems = {stem for stem in _stems(words) if stem not in SMALL}
    if not stems:
        raise UsageError(f'--about "{words}" has no word to look for; try "window split"')
    of_symptoms = {
        at: _Text(_stem_set(each.seen), _stem_set(each.also), _stem_set(each.note))
        for at, each in enumerate(symptoms())
    }
    of_laws = {law_id: _text_of(law) for law_id, law in LAWS.items()}
    texts = [*of_symptoms.values(), *of_laws.values()]
    # A word that no text has, as in "CUDA OOM after hours", says nothing about which is meant.
    known = stems & frozenset().union(*(each.head | each.faults | each.rest for each in texts))
    asked = {stem: _worth(stem, texts) for stem in known}
    least = HALF * 2 * sum(asked.values())
    seen = [symptoms()[at] for at in _ranked(of_symptoms, asked, least)[:MOST_SYMPTOMS]]
    named = {law_id for each in seen for law_id in each.laws}
    laws = [each for each in _ranked(of_laws, asked, 0) if each not in named]
    return Found(seen, [LAWS[each] for each in laws[:MOST_LAWS]])


def _ranked(texts: Mapping[Name, _Text], asked: Mapping[str, float], least: float) -> list[Name]:
    scores = {name: text.score(asked) for name, text in texts.items()}
    good = [name for name, score in scores.items() if score > least]
    return sorted(good, key=lambda name: -scores[name])


def _worth(stem: str, texts: Sequence[_Text]) -> float:
    """How much a word says: more if fewer texts have it."""
    counts = Counter(stem in text.head | text.faults | text.rest for text in texts)
    return log(1 + len(texts) / (1 + counts[True]))


def _text_of(law: Law) -> _Text:
    reasons = " ".join(each.reason for each in read_vectors() if each.law_id == law.law_id)
    sentence = law.statement.partition("\n\n")[0]
    head = f"{law.law_id} {law.name} {sentence}"
    return _Text(_stem_set(head), _stem_set(reasons), _stem_set(f"{law.statement} {law.why}"))


def _stem_set(text: str) -> frozenset[str]:
    return frozenset(_stems(text))


def _stems(text: str) -> Iterator[str]:
    """The words of a text in lower case, in our words, without the endings of verbs and plurals."""
    for word in re.findall(r"[a-z]+(?:-[0-9]+)?", text.lower().replace("_", " ")):
        stem = _stem(word)
        yield _stem(OURS.get(word, OURS.get(stem, stem)))


def _stem(word: str) -> str:
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= MIN_STEM:
            return word.removesuffix(ending).rstrip("e")
    return word.rstrip("e") if len(word) > MIN_STEM else word
