"""Explanations: violations as text, with the law, the operation and the law's first sentence.

One fault breaks many laws, and the first of them is not always the most telling, so all are listed.

A key is written as the Python that makes it, so that a reader finds the prompt among the calls of a
report; the report replaces that by the key's name, as `key_1`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from attrs import asdict, fields

from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.law import Law, Violation
from kvcanon.spec.operations import Operation, Outcome
from kvcanon.spec.snapshot import NodeState, Snapshot
from kvcanon.spec.types import CPU, GPU, Component, Key, NodeId, Page
from kvcanon.spec.views import Step

LONGEST_PAGES = 24
"""A longer key is written with its first and last pages only."""
SHOWN_PAGES = 4

HASH_DIGITS = 8
"""The digits of a hash that sentences of laws show."""

_NODE = re.compile(r"\bnode (\d+)\b")
_HASH = re.compile(rf"\b[0-9a-f]{{{HASH_DIGITS}}}\b")


def key_in_words(key: Key) -> str:
    """A key, as `Key(((0,), (0,)), Namespace(lora='a'))`."""
    pages = repr(key.pages)
    if len(key) > LONGEST_PAGES:
        first, last = (repr(some)[1:-1] for some in (key.pages[:SHOWN_PAGES], key.pages[-2:]))
        pages = f"({first}, ..., {last})"
    given = {name: part for name, part in asdict(key.namespace).items() if part is not None}
    if not given:
        return f"Key({pages})"
    parts = ", ".join(f"{name}={part!r}" for name, part in given.items())
    return f"Key({pages}, Namespace({parts}))"


def with_names(text: str, keys: Mapping[str, Key]) -> str:
    """A text in which each key, and each prefix of one, has its name."""
    names: dict[str, str] = {}
    for name, key in keys.items():
        for pages in range(len(key), 0, -1):
            prefix = name if pages == len(key) else f"{name}.prefix({pages})"
            names.setdefault(key_in_words(key.prefix(pages)), prefix)
    # A key that another one contains comes later.
    for words in sorted(names, key=len, reverse=True):
        text = text.replace(words, names[words])
    return text


def legend(text: str, *states: Snapshot) -> dict[str, str]:
    """What each node and page hash in a text is, by the first state that has it."""
    found: dict[str, str] = {}
    hashes = set(_HASH.findall(text))
    for state in states:
        for number in map(int, _NODE.findall(text)):
            if number in state.nodes and number != state.root_id:
                found.setdefault(f"node {number}", node_in_words(state, number))
        if hashes:
            for name, words in _hashed_pages(state):
                if name in hashes:
                    found.setdefault(f"page {name}", words)
    return found


def _hashed_pages(state: Snapshot) -> Iterator[tuple[str, str]]:
    """The beginning of the hash of each page in the tree, and the page."""
    for node in state.nodes.values():
        pages = _path_pages(state, node)
        hashes = page_hashes(namespace_seed(node.namespace), pages)
        for at in range(len(pages) - len(node.pages), len(pages)):
            key = key_in_words(Key(pages[: at + 1], node.namespace))
            yield hashes[at].hex()[:HASH_DIGITS], f"page {at} of {key}, in node {node.node_id}"


def node_in_words(state: Snapshot, node_id: NodeId) -> str:
    """What is in a node: its pages, the prompt that they end, and where their data is."""
    node = state.nodes[node_id]
    pages = _path_pages(state, node)
    start = len(pages) - len(node.pages)
    numbers = f"page {start}" if len(node.pages) == 1 else f"pages {start}..{len(pages) - 1}"
    data = [
        f"{component} slots {' '.join(map(str, slots))} on {medium}"
        for component in Component
        for medium in (GPU, CPU)
        if (slots := node[component].slots(medium))
    ]
    key = key_in_words(Key(pages, node.namespace))
    return f"{numbers} of {key}; {', '.join(data) or 'no data'}"


def _path_pages(state: Snapshot, node: NodeState) -> tuple[Page, ...]:
    """The pages from the root to the end of a node; a faulty tree may have no such path."""
    pages = node.pages
    seen = {node.node_id}
    parent = node.parent_id
    while parent is not None and parent in state.nodes and parent not in seen:
        seen.add(parent)
        pages = state.nodes[parent].pages + pages
        parent = state.nodes[parent].parent_id
    return pages


LONGEST = 160
"""The most characters of a field that are shown."""


def explain(
    violations: Sequence[Violation], step: Step, number: int, broken_before: Collection[str] = ()
) -> str:
    """Explain what the operation of this number broke, law by law.

    Laws in `broken_before` were broken before it, too, so that it is not to blame for them.
    """
    asked, answered = in_words(step.operation), in_words(step.outcome)
    words = explain_violations(violations, number, asked, answered, broken_before)
    named = legend(words, step.after, step.before)
    lines = [f"    {name}: {what}" for name, what in named.items()]
    return "\n".join([words, "", "Where that is:", *lines]) if lines else words


def explain_violations(
    violations: Sequence[Violation],
    number: int,
    asked: str,
    answered: str,
    broken_before: Collection[str] = (),
) -> str:
    """Like `explain`, for an operation and an answer that are text already."""
    count = "1 violation" if len(violations) == 1 else f"{len(violations)} violations"
    lines = [
        f"{count} after operation {number}, {asked},",
        f"which was answered {answered}:",
    ]
    for law in {violation.law.law_id: violation.law for violation in violations}.values():
        texts = [violation.text for violation in violations if violation.law is law]
        lines += ["", f"{law.law_id} {law.name}: {texts[0]}"]
        if len(texts) > 1:
            lines.append(f"    ... and {len(texts) - 1} more, as: {texts[1]}")
        lines += [f"    The law: {sentence(law)}", f"    Its page: {law.address}"]
        if law.law_id in broken_before:
            lines.append("    It was broken before, by an operation that was not judged.")
    return "\n".join(lines)


def sentence(law: Law) -> str:
    """Return the first paragraph of a law's text."""
    return " ".join(law.statement.split("\n\n")[0].split())


def in_words(value: Operation | Outcome) -> str:
    """Return an operation or an outcome as text, with long fields shortened."""
    parts = [f"{each.name}={_shortened(getattr(value, each.name))}" for each in fields(type(value))]
    return f"{type(value).__name__}({', '.join(parts)})"


def _shortened(value: object) -> str:
    if isinstance(value, Key):
        return key_in_words(value)
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
