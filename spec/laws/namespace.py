"""NS: names, and the namespaces that they begin in.

Routers and storage know a page only by its name. Two pages with one name are one page to them, and
what is removed or fetched for the one is removed or fetched for the other.

What readers get wrong: a namespace is not a prefix of tokens. Its fields are framed, each with its
presence and its length, or two different ones can run into the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.law import Kind, Premise, law
from kvcanon.spec.laws import situations
from kvcanon.spec.laws.names import PageNames, short
from kvcanon.spec.snapshot import NodeState, Snapshot
from kvcanon.spec.views import Step


@law(
    "NS-3",
    Kind.STEP,
    premise=Premise[Step](
        "a node with names that came, or was cut",
        situations.named_anew,
    ),
)
def hashes_follow_the_chain(step: Step) -> Iterator[str]:
    """Names that a step gave are those of the chain, one a page, and a page never changes its name.

    A node that the step cut is looked at like a new one: the names are parted where the pages are.
    The chain begins with the namespace, so that no two pages have one name. Only names that the
    cache has computed are looked at.

    Why: a page under a wrong name is not found by who looks for it, and is by who does not. Where
    two tenants' pages have one name, a router that hears of one being removed forgets the other,
    and storage returns what was written under the other's name.

    Seen broken: https://github.com/vllm-project/vllm/issues/44103,
    https://github.com/LMCache/LMCache/issues/1842,
    https://github.com/sgl-project/sglang/issues/24568,
    https://github.com/sgl-project/sglang/issues/25351,
    https://github.com/sgl-project/sglang/issues/26747
    """
    before, after = step.changed
    names = PageNames(step.after)
    for node_id in dict.fromkeys(row.node_id for row in after.values()):
        node, was = step.after.nodes[node_id], step.before.nodes.get(node_id)
        if node.hashes is None or (was is not None and _same_chain(step, was, node)):
            continue
        expected = page_hashes(names.before(node) or namespace_seed(node.namespace), node.pages)
        if node.hashes != expected:
            yield (
                f"{step.after.describe(node)} names its pages {_listed(node.hashes)}, "
                f"and the chain names them {_listed(expected)}"
            )
    for number, row in after.items():
        earlier = before.get(number)
        if earlier is None:
            continue
        now = _own_name(step.after, row.node_id, row.depth)
        then = _own_name(step.before, earlier.node_id, earlier.depth)
        if now != then and now is not None and then is not None:
            node = step.after.nodes[row.node_id]
            yield (
                f"page {row.depth} of its path, in {step.after.describe(node)}, was named "
                f"{short(then)} and is now named {short(now)}"
            )


def _same_chain(step: Step, was: NodeState, node: NodeState) -> bool:
    """Whether a node has the pages, the names and the name before them that it had."""
    if (was.pages, was.hashes, was.namespace) != (node.pages, node.hashes, node.namespace):
        return False
    if was.parent_id is None or node.parent_id is None:
        return False
    above, above_now = step.before.nodes[was.parent_id], step.after.nodes[node.parent_id]
    return (above.hashes or ())[-1:] == (above_now.hashes or ())[-1:]


def _own_name(state: Snapshot, node_id: int, depth: int) -> bytes | None:
    """The name that the cache itself has for the page at a depth of a node."""
    hashes, index = state.nodes[node_id].hashes, depth - state.starts[node_id]
    return hashes[index] if hashes is not None and index < len(hashes) else None


def _listed(names: tuple[bytes, ...]) -> str:
    return ", ".join(short(name) for name in names[:4]) + (", ..." if len(names) > 4 else "")
