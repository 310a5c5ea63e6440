"""RES, continued: that a copy on the host is a whole one, and at its place.

A node is of use from the host only with all that it was of use with on the device. So a backup
takes all of it or nothing, and fetched data goes to the very pages that it was fetched for.

What readers get wrong: window data that was healed after a node was backed up is not on the host
yet. The next insert that could use it completes the copy.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvcanon.spec.law import Kind, law
from kvcanon.spec.laws.comparing import (
    NO_POOL,
    in_words,
    page_in_words,
    pool_in_words,
    slot_of,
)
from kvcanon.spec.laws.residency import fits_on_host
from kvcanon.spec.operations import HostInserted, Insert, Inserted, InsertHost
from kvcanon.spec.oracle.window import window_start
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Component, Key
from kvcanon.spec.views import COLUMN, PageRow, Step, path_of, rows_along


@law("RES-9", Kind.STEP)
def fetched_data_is_at_its_pages(step: Step) -> Iterator[str]:
    """A host insert places data at the pages that it was given for, and changes nothing else.

    Placed are pages that were not in the tree, refilled are those that were, and present those with
    a settled copy (of which, under write_back, some behind a gap may count as dropped). Window data
    goes to pages that brought some, the state to the end of the key. On the path locks, hits and
    copies in flight stay; window data and states may leave the host for want of room. On the device
    no slot moves.

    Why: window data beside its page is read as that of its neighbour, once it is loaded back.

    Seen broken: https://github.com/sgl-project/sglang/issues/30057,
    https://github.com/sgl-project/sglang/issues/25991
    """
    asked, told = step.operation, step.outcome
    if not isinstance(asked, InsertHost) or not isinstance(told, HostInserted):
        return
    before, after = rows_along(step.before, asked.key), rows_along(step.after, asked.key)
    yield from _told_wrongly(step, asked, told, before, after)
    for page, row in enumerate(after):
        was = before[page] if page < len(before) else None
        yield from _misplaced(step, asked, page, was, row)
    for pool, now in step.after.pools.items():
        old = step.before.pools.get(pool, NO_POOL)
        if now.held != old.held or (pool[1] is GPU and set(now.free) != set(old.free)):
            yield f"a host insert changed which slots of {pool_in_words(pool)} are free or held"


@law("RES-10", Kind.STEP)
def backups_are_whole(step: Step) -> Iterator[str]:
    """What an insert backs up it backs up whole: all that a page has on the device, or nothing.

    Where a page of its path has a host copy already, and window data or the state at the end were
    healed since, they are copied, too: of the window before the deepest node that was hit often
    enough, and the state there, unless the host has no room for it.

    Why: full data alone cannot be matched where a window or a state is needed. The copy was paid
    for, the page counts as backed up, and the prompt is computed again.

    Seen broken: https://github.com/sgl-project/sglang/issues/30057,
    https://github.com/sgl-project/sglang/issues/29204
    """
    asked = step.operation
    if not isinstance(asked, Insert) or not isinstance(step.outcome, Inserted):
        return
    if step.before.config.backup_hits is None:
        return
    before, after = rows_along(step.before, asked.key), rows_along(step.after, asked.key)
    for page, row in enumerate(after):
        was = slot_of(before[page] if page < len(before) else None, FULL, CPU)
        if was is not None or row.slot(FULL, CPU) is None:
            continue
        for component in (SWA, MAMBA):
            if row.slot(component, GPU) is not None and row.slot(component, CPU) is None:
                yield (
                    f"{page_in_words(step.after, row)} was backed up without its {component} data, "
                    f"which is in slot {row.slot(component, GPU)} on {GPU}"
                )
    healed = [
        f"{page_in_words(step.after, row)} without its {component} data"
        for component, row in _healed(step, asked.key, after)
        if row.slot(component, CPU) is None
    ]
    if healed and fits_on_host(step.after, path_of(step.after, asked.key)):
        yield f"the host has {', '.join(healed)}, though there is room or could be made"


def _healed(step: Step, key: Key, rows: list[PageRow]) -> Iterator[tuple[Component, PageRow]]:
    """Window data and the state that an insert's deepest hit node can use, where full data is."""
    config = step.after.config
    threshold, end = config.backup_hits or 0, 0
    for node, shared in path_of(step.after, key):
        start = step.after.starts[node.node_id]
        end = start + shared if node.hit_count >= threshold else end
    window = 0 if config.window_tokens is None else config.window_tokens
    begin = window_start(end, window, config.page_size) if window else end
    for page in range(begin, end):
        row = rows[page]
        if (
            row.hit_count >= threshold
            and row.slot(FULL, CPU) is not None
            and row.slot(SWA, GPU) is not None
        ):
            yield SWA, row
    if (
        end
        and rows[end - 1].slot(FULL, CPU) is not None
        and rows[end - 1].slot(MAMBA, GPU) is not None
    ):
        yield MAMBA, rows[end - 1]


def _told_wrongly(
    step: Step,
    asked: InsertHost,
    told: HostInserted,
    before: list[PageRow],
    after: list[PageRow],
) -> Iterator[str]:
    """Counts of a host insert that are not true of the pages of its key."""
    gained = [
        page
        for page, row in enumerate(after)
        if row.slot(FULL, CPU) is not None
        and slot_of(before[page] if page < len(before) else None, FULL, CPU) is None
    ]
    settled = sum(
        row.slot(FULL, CPU) is not None and row.backing[COLUMN[FULL]] is None
        for row in before[asked.start_pages :]
    )
    placed = sum(page >= len(before) for page in gained)
    exact = step.before.config.backed_parents
    for name, count, true in (
        ("placed", told.placed_pages, placed),
        ("refilled", told.refilled_pages, len(gained) - placed),
        ("present", told.present_pages, settled if exact else min(settled, told.present_pages)),
    ):
        if count != true:
            yield f"{count} pages are said to be {name}, and {true} are"
    early = [page for page in gained if page < asked.start_pages]
    if early:
        yield f"pages {early} have a host copy now; bytes came from page {asked.start_pages} on"


def _misplaced(
    step: Step, asked: InsertHost, page: int, was: PageRow | None, now: PageRow
) -> Iterator[str]:
    """What a host insert did to a page of its key besides giving it what was fetched for it."""
    where, end = page_in_words(step.after, now), len(asked.key)
    brought = {SWA: len(asked.payload.swa), MAMBA: len(asked.payload.mamba)}
    for component, count in brought.items():
        old, new = slot_of(was, component, CPU), now.slot(component, CPU)
        if new not in (None, old) and page < end - count:
            yield (
                f"{where} has {component} slot {new} on {CPU}, where it had {in_words(old)}; it is "
                f"page {page} of the key, and data was given for the last {count} pages"
            )
    if was is None:
        if now.hit_count or any(slot is not None for slot in now.device):
            yield f"{where} is new, and has {now.hit_count} hits and slots {now.device} on {GPU}"
        return
    for field in ("device", "loading", "backing", "lock_refs", "hit_count"):
        if getattr(was, field) != getattr(now, field):
            yield f"{where}: {field} was {getattr(was, field)} and is {getattr(now, field)}"
