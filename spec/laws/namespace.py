"""NS: page hashes, and the namespaces that they begin with.

Routers and storage know a page only by its hash. Two pages with one hash are one page to them:
whatever is removed or fetched for one is removed or fetched for the other.

What readers get wrong: a namespace is not a prefix of tokens. Its fields are framed, each with its
presence byte and its length, or two different namespaces could have the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.law import Kind, LawClass, Premise, law
from kvcanon.spec.laws import situations
from kvcanon.spec.laws.page_hashes import PageHashes, short
from kvcanon.spec.snapshot import NodeState, Snapshot
from kvcanon.spec.views import Step


@law(
    "NS-3",
    Kind.STEP,
    LawClass.SOUND,
    premise=Premise[Step](
        "a new node, or a cut one, with page hashes",
        situations.named_anew,
    ),
)
def hashes_follow_the_chain(step: Step) -> Iterator[str]:
    """The page hashes that a step set follow the chain, and a page never changes its hash.

    A node that the step cut is checked like a new one: its hashes are divided where its pages are.
    The chain begins with the namespace, so that no two pages have the same hash. Only hashes that
    the cache has computed are checked.

    Why: a page with a wrong hash is missed by prompts that need it, and found by others. If two
    tenants' pages have the same hash, a router that hears of the removal of one drops the other,
    and storage returns data of the other.

    Seen broken: https://github.com/vllm-project/vllm/issues/44103,
    https://github.com/LMCache/LMCache/issues/1842,
    https://github.com/sgl-project/sglang/issues/24568,
    https://github.com/sgl-project/sglang/issues/25351,
    https://github.com/sgl-project/sglang/issues/26747
    """
    before, after = step.changed
    hashes = PageHashes(step.after)
    for node_id in dict.fromkeys(row.node_id for row in after.values()):
        node, was = step.after.nodes[node_id], step.before.nodes.get(node_id)
        if node.hashes is None or (was is not None and _same_chain(step, was, node)):
            continue
        expected = page_hashes(hashes.before(node) or namespace_seed(node.namespace), node.pages)
        if node.hashes != expected:
            yield (
                f"{step.after.describe(node)} has page hashes {_listed(node.hashes)}; "
                f"the chain gives {_listed(expected)}"
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
                f"page {row.depth} of its path, in {step.after.describe(node)}, had hash "
                f"{short(then)} and now has {short(now)}"
            )


def _same_chain(step: Step, was: NodeState, node: NodeState) -> bool:
    """Whether a node has the same pages, hashes and parent hash as before."""
    if (was.pages, was.hashes, was.namespace) != (node.pages, node.hashes, node.namespace):
        return False
    if was.parent_id is None or node.parent_id is None:
        return False
    above, above_now = step.before.nodes[was.parent_id], step.after.nodes[node.parent_id]
    return (above.hashes or ())[-1:] == (above_now.hashes or ())[-1:]


def _own_name(state: Snapshot, node_id: int, depth: int) -> bytes | None:
    """The hash that the cache itself has computed for the page at a depth of a node."""
    hashes, index = state.nodes[node_id].hashes, depth - state.starts[node_id]
    return hashes[index] if hashes is not None and index < len(hashes) else None


def _listed(hashes: tuple[bytes, ...]) -> str:
    return ", ".join(short(each) for each in hashes[:4]) + (", ..." if len(hashes) > 4 else "")
