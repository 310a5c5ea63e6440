"""Keys and pages as text, so that a reader finds the prompt among the calls of a report.

A key is written as the Python that makes it; a report replaces that by the key's name, as `key_1`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from attrs import asdict

from kvcanon.spec.snapshot import NodeState, Snapshot
from kvcanon.spec.types import CPU, GPU, Component, Key, NodeId, Page

LONGEST_PAGES = 24
"""A longer key is written with its first and last pages only."""
SHOWN_PAGES = 4

_NODE = re.compile(r"\bnode (\d+)\b")


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


def nodes_named(text: str, *states: Snapshot) -> dict[NodeId, str]:
    """What is in each node that a text names, as the first of the states says that has it."""
    numbers = dict.fromkeys(map(int, _NODE.findall(text)))
    return {
        number: node_in_words(state, number)
        for number in numbers
        for state in [next((each for each in states if number in each.nodes), None)]
        if state is not None and number != state.root_id
    }


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
