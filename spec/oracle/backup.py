"""The backup chain: the nodes that must be copied to the host so that one node can be backed up.

A node whose parent has no backup must not be skipped: it would be deleted, without a copy, when the
device needs its slots (sgl#25065).
"""

from __future__ import annotations


def needs_copy(on_host: bool, is_last: bool, needs_backed_parents: bool) -> bool:
    """Whether a node on the path must be copied so that the last node is usable from the host.

    Computed without branches, so that a solver can check it for a whole tree at once.

    post: not (__return__ and on_host)
    post: __return__ or on_host or not is_last
    post: __return__ or on_host or not needs_backed_parents
    post: is_last or needs_backed_parents or not __return__
    """
    return (on_host ^ True) & (is_last | needs_backed_parents)


def backup_chain(backed: tuple[bool, ...], needs_backed_parents: bool) -> tuple[int, ...]:
    """Positions on a path, root first, whose backup must be enqueued to back up the last node.

    Where parents need a backup (write-through), these are all positions without one. Under
    write_back it is only the last position, if it has no backup yet.

    Source: https://github.com/sgl-project/sglang/pull/25065

    pre: 1 <= len(backed) <= 6
    post: all(not backed[i] for i in __return__)
    post: backed[-1] or (len(backed) - 1) in __return__
    post: not needs_backed_parents or all(backed[i] or i in __return__ for i in range(len(backed)))
    post: tuple(sorted(__return__)) == __return__
    """
    last = len(backed) - 1
    return tuple(
        [
            at
            for at, on_host in enumerate(backed)
            if needs_copy(on_host, at == last, needs_backed_parents)
        ]
    )
