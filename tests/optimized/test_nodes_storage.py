"""What the nodes of a cache answer for storage below its host: hashes, holds and fetched pages."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence

import pytest

from fast.nodes import CPU, FULL, GPU, MAMBA, SWA, end_of, listed, made, prompt
from kvcanon.optimized import _core
from kvcanon.optimized.native_types import FetchedTaken
from kvcanon.spec.errors import BadArgument, OutOfSlots, ReceiptSpent
from kvcanon.spec.types import WritePolicy

THROUGH, BACK = WritePolicy.WRITE_THROUGH, WritePolicy.WRITE_BACK
SEED = hashlib.sha256(b"seed").digest()


def chain(tokens: Sequence[int], page_size: int, seed: bytes = b"") -> list[str]:
    """Page hashes from the definition: SHA-256 over the hash before and the page's words."""
    hashes, before = [], seed
    for at in range(0, len(tokens) - page_size + 1, page_size):
        words = b"".join(token.to_bytes(4, "little") for token in tokens[at : at + page_size])
        before = hashlib.sha256(before + words).digest()
        hashes.append(before.hex())
    return hashes


def backed(nodes: _core.Nodes, *tokens: int) -> int:
    """Insert a prompt and copy it to the host; return the node in which it ends."""
    end = end_of(nodes, *tokens)
    path = [end]
    while (above := nodes.parent(path[-1])) != nodes.root():
        assert above is not None
        path.append(above)
    nodes.add_host_copy([node for node in path[::-1] if not nodes.has(node, FULL, CPU)], [FULL])
    return end


def taken(done: FetchedTaken) -> list[tuple[int, list[int]]]:
    """The first page and the rows of what the tree took."""
    return [(first, rows.tolist()) for first, rows in done.taken]


def held_on_device(nodes: _core.Nodes) -> set[int]:
    """The nodes that have full data on the device."""
    return {node for node in nodes.all() if node != nodes.root() and nodes.has(node, FULL, GPU)}


# Hashes.


def test_storage_hashes_are_the_chain_of_the_tokens() -> None:
    """A node has those of its pages, the last of them, and those of the nodes above."""
    _, nodes = made(page_size=2)
    tokens = range(1, 13)
    upper = end_of(nodes, *tokens[:4])
    lower = end_of(nodes, *tokens[:10])
    end = end_of(nodes, *tokens)
    wanted = chain(tokens, 2)
    assert nodes.storage_hashes(lower) == wanted[2:5]
    assert nodes.storage_hashes(end, nodes.root()) == wanted
    assert nodes.storage_hashes(upper, nodes.root()) == wanted[:2]
    assert [nodes.last_storage_hash(node) for node in (upper, lower, end)] == [
        wanted[1],
        wanted[4],
        wanted[5],
    ]
    assert nodes.storage_hashes(nodes.root()) == nodes.storage_hashes(end, end) == []
    assert nodes.last_storage_hash(nodes.root()) is None
    with pytest.raises(BadArgument, match="above: is not above the node"):
        nodes.storage_hashes(upper, end)


def test_storage_hashes_follow_cuts_and_branches() -> None:
    """A cut changes no hash, also where it comes first; a branch continues the page before it."""
    _, nodes = made(slots=32)
    first = end_of(nodes, 1, 2, 3, 4)
    assert nodes.storage_hashes(first) == chain([1, 2, 3, 4], 1)
    branch = end_of(nodes, 1, 2, 7, 8, 9)
    upper = nodes.parent(first)
    assert upper is not None
    assert nodes.storage_hashes(upper) == chain([1, 2], 1)
    assert nodes.storage_hashes(first) == chain([1, 2, 3, 4], 1)[2:]
    assert nodes.storage_hashes(branch) == chain([1, 2, 7, 8, 9], 1)[2:]
    # Pages that came after hashes were made, in the place of others that left.
    assert nodes.evict_step(FULL, 2).node == first
    again = end_of(nodes, 1, 2, 5, 6, 7, 8)
    assert nodes.storage_hashes(again, nodes.root()) == chain([1, 2, 5, 6, 7, 8], 1)


def test_a_chain_that_grows_continues_its_hashes() -> None:
    """Each node of a long chain has the hashes of the whole prompt, asked in any order."""
    _, nodes = made(slots=64)
    tokens = list(range(1, 41))
    ends = [end_of(nodes, *tokens[:length]) for length in range(2, 41, 2)]
    wanted = chain(tokens, 1)
    for at in (10, 3, 19, 0, 18):
        assert nodes.storage_hashes(ends[at], nodes.root()) == wanted[: 2 * at + 2]


def test_storage_hashes_have_a_seed_of_their_own_in_a_namespace() -> None:
    """Events and storage may begin a namespace's chains with different seeds."""
    _, nodes = made()
    number, _ = nodes.add_namespace(b"tenant", bytes(32), SEED)
    plain, _ = nodes.add_namespace(b"plain", SEED)
    for namespace, seed in ((0, b""), (number, SEED), (plain, b"")):
        end = nodes.insert(prompt(1, 2), namespace).end
        assert nodes.storage_hashes(end) == chain([1, 2], 1, seed)
        assert nodes.namespace_of(end) == namespace
    assert nodes.namespace_of(nodes.root()) == 0
    with pytest.raises(BadArgument, match="storage_seed: must have 32 bytes"):
        nodes.add_namespace(b"short", b"", b"short")


def test_bigrams_are_hashed_as_units() -> None:
    """Two neighbours are a unit, and a node's tokens are those of the prompt."""
    _, nodes = made(bigram=True)
    end = end_of(nodes, 1, 2, 3, 4)
    assert nodes.storage_hashes(end) == chain([1, 2, 2, 3, 3, 4], 2)
    assert array("q", nodes.tokens(end)) == prompt(1, 2, 3, 4)


def test_a_nodes_tokens_are_its_own() -> None:
    """They begin where the node above ends."""
    _, nodes = made(page_size=2)
    end_of(nodes, 1, 2)
    assert array("q", nodes.tokens(end_of(nodes, 1, 2, 3, 4, 5, 6))) == prompt(3, 4, 5, 6)
    assert nodes.tokens(nodes.root()) == b""


# Holds of host copies.


def test_a_hold_keeps_the_host_copy_and_not_the_device() -> None:
    """The device loses the node; the host keeps it until the hold ends."""
    core, nodes = made(policy=THROUGH)
    end, other = backed(nodes, 1, 2), backed(nodes, 3)
    receipt = nodes.hold_host(end)
    view = _core.Tree(core)
    assert view.pool_counts(FULL, CPU)[3:] == (3, 2)
    while nodes.evict_step(FULL).node:
        pass
    assert not held_on_device(nodes)
    assert listed(nodes.evict_host(FULL, 3)[1])[FULL] == [2]
    assert nodes.all() == [nodes.root(), end]
    nodes.release_host(end, receipt)
    assert view.pool_counts(FULL, CPU)[3:] == (2, 0)
    assert listed(nodes.evict_host(FULL, 3)[1])[FULL] == [0, 1]
    assert other not in nodes.all()


def test_a_hold_covers_both_parts_of_a_cut() -> None:
    """What is held stays held where the tree cuts it, and comes free as a whole."""
    core, nodes = made(policy=THROUGH)
    end = backed(nodes, 1, 2, 3)
    receipt = nodes.hold_host(end)
    (cut,) = nodes.match(prompt(1, 9)).cuts
    assert cut[1:] == (end, 1)
    while nodes.evict_step(FULL).node:
        pass
    assert listed(nodes.evict_host(FULL, 3)[1])[FULL] is None
    assert _core.Tree(core).pool_counts(FULL, CPU)[3:] == (3, 3)
    nodes.release_host(end, receipt)
    assert _core.Tree(core).pool_counts(FULL, CPU)[3:] == (3, 0)


def test_a_hold_keeps_the_window_before_it() -> None:
    """Window data of the last window stays, that of earlier pages may leave."""
    _, nodes = made(window=2, policy=THROUGH)
    first = end_of(nodes, 1, 2, 3)
    second = end_of(nodes, 1, 2, 3, 4)
    end = end_of(nodes, 1, 2, 3, 4, 5)
    path = [first, second, end]
    while (above := nodes.parent(path[0])) != nodes.root():
        assert above is not None
        path.insert(0, above)
    nodes.add_host_copy(path, [FULL, SWA])
    while nodes.evict_step(FULL).node:
        pass
    receipt = nodes.hold_host(end)
    nodes.evict_host(SWA, 16)
    assert [nodes.has(node, SWA, CPU) for node in (second, end)] == [True, True]
    assert not nodes.has(path[0], SWA, CPU)
    nodes.release_host(end, receipt)
    nodes.evict_host(SWA, 16)
    assert end not in nodes.all()


def test_a_hold_keeps_the_state_that_it_ends_at_and_none_above() -> None:
    """What is loaded or written has one state; those above may leave, also after a cut."""
    core, nodes = made(window=8, mamba=True, policy=THROUGH)
    upper = nodes.insert(prompt(1), state=True).end
    end = nodes.insert(prompt(1, 2, 3), state=True).end
    nodes.add_host_copy([upper, end], [FULL, SWA, MAMBA])
    receipt = nodes.hold_host(end)
    nodes.match(prompt(1, 2, 9))
    while nodes.evict_step(FULL).node:
        pass
    assert _core.Tree(core).pool_counts(MAMBA, CPU)[3:] == (2, 1)
    for component in (SWA, MAMBA):
        nodes.evict_host(component, 16)
    assert [nodes.has(each, MAMBA, CPU) for each in (upper, end)] == [False, True]
    assert [nodes.has(each, SWA, CPU) for each in (upper, end)] == [True, True]
    nodes.release_host(end, receipt)
    assert _core.Tree(core).pool_counts(MAMBA, CPU)[3:] == (1, 0)
    nodes.evict_host(MAMBA, 16)
    assert end not in nodes.all()


def test_a_lock_of_what_is_held_counts_it_once() -> None:
    """Whichever ends first, the host copy is protected until both have."""
    core, nodes = made(policy=THROUGH)
    end = backed(nodes, 1, 2)
    for lock_ends_first in (True, False):
        held, (locked, _, _) = nodes.hold_host(end), nodes.lock(end)
        assert _core.Tree(core).pool_counts(FULL, CPU)[3:] == (2, 2)
        if lock_ends_first:
            nodes.unlock(end, locked)
        else:
            nodes.release_host(end, held)
        assert _core.Tree(core).pool_counts(FULL, CPU)[3:] == (2, 2)
        if lock_ends_first:
            nodes.release_host(end, held)
        else:
            nodes.unlock(end, locked)
        assert _core.Tree(core).pool_counts(FULL, CPU)[3:] == (2, 0)


def test_a_hold_is_for_its_node_and_ends_once() -> None:
    """A receipt of another node, or one that was given back, is refused, and nothing changes."""
    _, nodes = made(policy=THROUGH)
    end, other = backed(nodes, 1), backed(nodes, 2)
    first, second = nodes.hold_host(end), nodes.hold_host(end)
    with pytest.raises(BadArgument, match="was given for node"):
        nodes.release_host(other, first)
    nodes.release_host(end, first)
    with pytest.raises(ReceiptSpent):
        nodes.release_host(end, first)
    while nodes.evict_step(FULL).node:
        pass
    nodes.evict_host(FULL, 2)
    assert nodes.all() == [nodes.root(), end]
    nodes.release_host(end, second)


def test_a_hold_of_the_root_holds_nothing() -> None:
    """It is taken for pages that begin a prompt, and given back."""
    _, nodes = made(policy=THROUGH)
    nodes.release_host(nodes.root(), nodes.hold_host(nodes.root()))


def test_a_held_node_without_a_copy_stays_on_the_device() -> None:
    """It would leave the tree with what is about to follow it."""
    _, nodes = made(policy=THROUGH)
    end = end_of(nodes, 1)
    receipt = nodes.hold_host(end)
    assert not nodes.evict_step(FULL).node
    nodes.release_host(end, receipt)
    assert nodes.evict_step(FULL).node == end


def test_under_write_back_nothing_leaves_with_a_held_node_below() -> None:
    """A node without a copy takes those below it along, so it stays; duplicates are kept, too."""
    _, nodes = made(policy=BACK)
    upper = end_of(nodes, 1)
    end = end_of(nodes, 1, 2)
    nodes.add_host_copy([end], [FULL])
    receipt = nodes.hold_host(end)
    assert listed(nodes.evict_host(FULL, 1)[1])[FULL] is None
    nodes.evict_node(end, FULL)
    with pytest.raises(BadArgument, match="a hold covers what the host has below it"):
        nodes.evict_node(upper, FULL)
    nodes.release_host(end, receipt)
    assert nodes.evict_node(upper, FULL).node == upper
    assert nodes.all() == [nodes.root()]


def test_a_forgotten_tree_has_no_holds() -> None:
    """Its receipts are spent, and what comes after is not held."""
    _, nodes = made(policy=THROUGH)
    end = backed(nodes, 1)
    nodes.hold_host(end)
    nodes.forget()
    again = backed(nodes, 1)
    while nodes.evict_step(FULL).node:
        pass
    nodes.evict_host(FULL, 1)
    assert again not in nodes.all()


# Fetched pages.


def test_fetched_pages_become_a_node_on_the_host() -> None:
    """They follow the given node, are loaded like a copy, and their store is emitted."""
    core, nodes = made(page_size=2, policy=THROUGH)
    end = backed(nodes, 1, 2)
    core.take_event_parts()
    done = nodes.take_fetched(end, prompt(3, 4, 5, 6))
    assert (taken(done), done.present_pages, done.dropped, done.cuts) == (
        [(0, [1, 2])],
        0,
        False,
        [],
    )
    assert nodes.parent(done.end) == end
    assert nodes.describe(done.end) == (1, 3, (False, False, False), (True, False, False))
    found = nodes.match(prompt(1, 2, 3, 4, 5, 6))
    assert (found.end, found.device_pages, found.prefix_pages) == (done.end, 1, 3)
    ((kind, _, medium, parent, _, _),) = core.take_event_parts()
    assert (kind, medium) == (0, 1)
    assert parent is not None
    assert nodes.storage_hashes(done.end, nodes.root()) == chain(range(1, 7), 2)


def test_fetched_pages_are_adopted_by_what_only_the_device_has() -> None:
    """What the host has stays the caller's, what it lacks is adopted, and the rest is new."""
    _, nodes = made(policy=THROUGH)
    first = backed(nodes, 1)
    second = end_of(nodes, 1, 2, 3)
    done = nodes.take_fetched(nodes.root(), prompt(1, 2, 3, 4))
    assert (done.present_pages, taken(done), done.dropped) == (1, [(1, [1, 2]), (3, [3])], False)
    assert nodes.has(second, FULL, CPU)
    assert nodes.has(second, FULL, GPU)
    assert nodes.parent(done.end) == second
    again = nodes.take_fetched(first, prompt(2, 3, 4))
    assert (again.present_pages, again.taken, again.end) == (3, [], done.end)


def test_fetched_pages_cut_the_node_in_which_they_end() -> None:
    """Only the pages that were fetched are adopted."""
    _, nodes = made(policy=THROUGH)
    end = end_of(nodes, 1, 2, 3)
    done = nodes.take_fetched(nodes.root(), prompt(1, 2))
    assert done.cuts == [(done.end, end, 2)]
    assert (taken(done), done.present_pages) == ([(0, [0, 1])], 0)
    assert not nodes.has(end, FULL, CPU)


def test_fetched_pages_branch_off_where_they_differ() -> None:
    """The node is cut there, and the new pages are its sibling."""
    _, nodes = made(policy=THROUGH)
    end = backed(nodes, 1, 2, 3)
    done = nodes.take_fetched(nodes.root(), prompt(1, 7))
    ((upper, lower, pages),) = done.cuts
    assert (lower, pages, done.present_pages) == (end, 1, 1)
    assert nodes.parent(done.end) == upper
    assert taken(done) == [(1, [3])]


def test_under_write_back_nothing_is_adopted() -> None:
    """The caller keeps all that the tree had; what follows is new, also below the device alone."""
    _, nodes = made(policy=BACK)
    end = end_of(nodes, 1, 2)
    done = nodes.take_fetched(nodes.root(), prompt(1, 2, 3))
    assert (done.present_pages, taken(done), done.dropped) == (2, [(2, [0])], False)
    assert not nodes.has(end, FULL, CPU)
    known = nodes.take_fetched(nodes.root(), prompt(1, 2))
    assert (known.present_pages, known.taken, known.end) == (2, [], 0)


def test_nothing_to_take_changes_nothing() -> None:
    """No page is taken from less than one."""
    _, nodes = made(page_size=2, policy=THROUGH)
    done = nodes.take_fetched(nodes.root(), prompt(1))
    assert (done.end, done.taken, done.present_pages, done.dropped) == (0, [], 0, False)
    assert nodes.all() == [nodes.root()]


def test_pages_below_a_node_without_a_copy_are_dropped() -> None:
    """The host would lack the page before them."""
    _, nodes = made(policy=THROUGH)
    end = end_of(nodes, 1)
    done = nodes.take_fetched(end, prompt(2))
    assert (done.end, done.taken, done.dropped) == (0, [], True)
    assert nodes.all() == [nodes.root(), end]


def test_a_node_below_one_without_a_copy_adopts_none() -> None:
    """Also where the tree has the fetched pages, on the device alone."""
    _, nodes = made(policy=THROUGH)
    end = end_of(nodes, 1, 2, 3)
    found = nodes.match(prompt(1, 9))
    done = nodes.take_fetched(found.end, prompt(2, 3, 4))
    assert (done.end, done.taken, done.present_pages, done.dropped) == (0, [], 0, True)
    assert not nodes.has(end, FULL, CPU)


def test_fetched_pages_that_do_not_fit_are_refused() -> None:
    """Nothing has changed then; nor where the namespace is another, or there is no host."""
    _, nodes = made(slots=4, policy=THROUGH)
    end = backed(nodes, 1, 2)
    with pytest.raises(OutOfSlots):
        nodes.take_fetched(nodes.root(), prompt(1, 7, 8, 9))
    number, _ = nodes.add_namespace(b"tenant", bytes(32), SEED)
    with pytest.raises(BadArgument, match="namespace: is not that of the node"):
        nodes.take_fetched(end, prompt(3), number)
    assert nodes.all() == [nodes.root(), end]
    _, bare = made()
    with pytest.raises(BadArgument, match="there is no host tier"):
        bare.take_fetched(bare.root(), prompt(1))


def test_fetched_pages_are_in_their_namespace() -> None:
    """A prompt of another namespace does not find them."""
    _, nodes = made(policy=THROUGH)
    number, _ = nodes.add_namespace(b"tenant", bytes(32), SEED)
    done = nodes.take_fetched(nodes.root(), prompt(1, 2), number)
    assert nodes.match(prompt(1, 2), number).end == done.end
    assert nodes.match(prompt(1, 2)).prefix_pages == 0
    assert nodes.storage_hashes(done.end) == chain([1, 2], 1, SEED)


def test_fetched_pages_are_recent() -> None:
    """What was there before leaves the host first."""
    _, nodes = made(policy=THROUGH)
    old = nodes.take_fetched(nodes.root(), prompt(1)).end
    new = nodes.take_fetched(nodes.root(), prompt(2)).end
    nodes.take_fetched(nodes.root(), prompt(1))
    nodes.evict_host(FULL, 1)
    assert old in nodes.all()
    assert new not in nodes.all()


# Fetched windows and states.


def test_a_fetched_window_fills_what_the_host_lacks() -> None:
    """The new node takes its part; the pages above the given node stay the caller's."""
    _, nodes = made(window=2, slots=32, policy=THROUGH)
    done = nodes.take_fetched(nodes.root(), prompt(1, 2, 3, 4))
    rows, left, cuts = nodes.take_fetched_window(nodes.root(), done.end, 2)
    assert [(first, found.tolist()) for first, found in rows] == [(0, [0, 1])]
    ((upper, lower, pages),) = cuts
    assert (left, lower, pages) == ([], done.end, 2)
    assert nodes.has(done.end, SWA, CPU)
    assert not nodes.has(upper, SWA, CPU)
    found = nodes.match(prompt(1, 2, 3, 4))
    assert (found.prefix_pages, found.host_only) == (4, (4, 2, 0))
    # What the host has already, and what is above, is given back.
    longer = nodes.take_fetched(done.end, prompt(5))
    assert nodes.take_fetched_window(nodes.root(), longer.end, 3)[1] == [(0, 2)]
    again, left, _ = nodes.take_fetched_window(done.end, longer.end, 3)
    assert (again, left) == ([], [(2, 3), (0, 2)])


def test_a_fetched_window_is_refused_where_it_cannot_be() -> None:
    """There are fewer pages, another path, or no window."""
    _, nodes = made(window=2, policy=THROUGH)
    end = nodes.take_fetched(nodes.root(), prompt(1)).end
    other = nodes.take_fetched(nodes.root(), prompt(2)).end
    with pytest.raises(BadArgument, match="pages: is 2"):
        nodes.take_fetched_window(nodes.root(), end, 2)
    with pytest.raises(BadArgument, match="above: is not above the node"):
        nodes.take_fetched_window(other, end, 1)
    _, plain = made(policy=THROUGH)
    with pytest.raises(BadArgument, match="a cache with a window"):
        plain.take_fetched_window(plain.root(), plain.root(), 0)


def test_a_window_needs_full_data_on_the_host() -> None:
    """Under write_back nothing is adopted, and so no window either."""
    _, nodes = made(window=2, policy=BACK)
    end = end_of(nodes, 1, 2)
    assert nodes.take_fetched_window(nodes.root(), end, 2)[:2] == ([], [(0, 2)])


def test_a_fetched_state_is_taken_once() -> None:
    """It is that of the end, and the next one stays the caller's."""
    _, nodes = made(mamba=True, policy=THROUGH)
    end = nodes.take_fetched(nodes.root(), prompt(1, 2)).end
    row = nodes.take_fetched_state(end)
    assert row is not None
    assert row.tolist() == [0]
    assert nodes.has(end, MAMBA, CPU)
    assert nodes.take_fetched_state(end) is None
    assert nodes.match(prompt(1, 2)).prefix_pages == 2
    with pytest.raises(BadArgument, match="the root, or the cache has no states"):
        nodes.take_fetched_state(nodes.root())


# The write policy.


def test_the_write_policy_changes_while_there_are_nodes() -> None:
    """Under write_back the host gives up what the device has; the way back needs whole prefixes."""
    _, nodes = made(slots=4, policy=THROUGH)
    upper, end = backed(nodes, 1), backed(nodes, 1, 2)
    assert listed(nodes.evict_host(FULL, 1)[1])[FULL] is None
    nodes.set_write_back(write_back=True)
    assert listed(nodes.evict_host(FULL, 1)[1])[FULL] == [0]
    assert [nodes.has(node, FULL, CPU) for node in (upper, end)] == [False, True]
    with pytest.raises(BadArgument, match="the host has data without the data before"):
        nodes.set_write_back(write_back=False)
    nodes.add_host_copy([upper], [FULL])
    nodes.set_write_back(write_back=False)
    assert listed(nodes.evict_host(FULL, 1)[1])[FULL] is None
    _, bare = made()
    with pytest.raises(BadArgument, match="needs a host tier"):
        bare.set_write_back(write_back=True)


def test_under_write_back_a_hold_lets_the_device_lose_the_window_before_it() -> None:
    """The nodes above that the host lacks are copied and leave as without it."""
    _, nodes = made(window=2, policy=BACK)
    upper = end_of(nodes, 1)
    end = end_of(nodes, 1, 2)
    nodes.add_host_copy([end], [FULL, SWA])
    receipt = nodes.hold_host(end)
    assert nodes.evict_step(FULL).node == end
    step = nodes.evict_step(FULL)
    assert (step.node, step.copy_first) == (upper, True)
    nodes.release_host(end, receipt)


def test_a_hold_counts_as_a_receipt() -> None:
    """Whoever watches for locks that are never released sees it."""
    core, nodes = made(policy=THROUGH)
    end = backed(nodes, 1)
    receipt = nodes.hold_host(end)
    view = _core.Tree(core)
    assert view.counters()["receipts"] == 1
    nodes.release_host(end, receipt)
    assert view.counters()["receipts"] == 0
