"""RES, continued: host copies are complete and belong to the right pages.

A node can be used from the host only if it has all data there that it had on the device. So a
backup takes everything or nothing. Window data that was healed after a backup is not on the host
yet; the next insert of that prefix completes the copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvcanon.spec.cache import Cache
from kvcanon.spec.law import Kind, LawClass, Need, Premise, law
from kvcanon.spec.laws import bounds, premises
from kvcanon.spec.laws.comparison import in_words, page_in_words, pool_in_words, slot_of
from kvcanon.spec.operations import HostInserted, Insert, Inserted, InsertHost
from kvcanon.spec.replay.backup import enqueued_parts
from kvcanon.spec.snapshot import NO_POOL
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Key
from kvcanon.spec.views import COLUMN, PageRow, Step, Stop, path_of, rows_along


@law(
    "RES-9",
    Kind.STEP,
    LawClass.SOUND,
    premise=premises.HOST_INSERT,
    enabled_if=bounds.fetches_pages,
    from_outside=((Cache.insert_host,),),
)
def fetched_data_is_at_its_pages(step: Step) -> Iterator[str]:
    """A host insert places data at the pages that it was fetched for, and changes nothing else.

    It accounts for every page that it was given: placed pages were not in the tree; refilled pages
    were, without a host copy; present pages had a settled copy (under write_back some of these,
    behind a gap, may count as dropped); the rest is dropped. Window data goes to the pages that it
    came with, the mamba state to the end of the key. On the path, full data on the host, locks,
    hits and copies in flight stay; window data and mamba states may be evicted from the host. No
    device slot changes.

    Why: window data at the wrong page is loaded back as its neighbour's. And a caller with wrong
    counts loses the pages that it fetched, or holds them twice.

    Seen broken: https://github.com/sgl-project/sglang/issues/13483,
    https://github.com/sgl-project/sglang/issues/30057,
    https://github.com/sgl-project/sglang/issues/25991
    """
    call, outcome = step.operation, step.outcome
    if not isinstance(call, InsertHost) or not isinstance(outcome, HostInserted):
        return
    before, after = rows_along(step.before, call.key), rows_along(step.after, call.key)
    yield from _miscounted(step, call, outcome, before, after)
    for page, row in enumerate(after):
        was = before[page] if page < len(before) else None
        yield from _misplaced(step, call, page, was, row)
    for row in before[len(after) :]:
        yield f"{page_in_words(step.before, row)} of the key is not in the tree any more"
    for pool, now in step.after.pools.items():
        old = step.before.pools.get(pool, NO_POOL)
        if now.held != old.held or (pool[1] is GPU and set(now.free) != set(old.free)):
            yield f"a host insert changed which slots of {pool_in_words(pool)} are free or held"


@law(
    "RES-10",
    Kind.STEP,
    LawClass.POLICY,
    chosen_by="backups",
    premise=Premise[Step](
        "an insert that backs up",
        lambda step: isinstance(step.outcome, Inserted) and bool(step.outcome.backups),
    ),
    needs=(Need.SNAPSHOT, Need.HITS),
    enabled_if=bounds.backs_up_inserts,
)
def backups_are_whole(step: Step) -> Iterator[str]:
    """An insert backs up all data that a page has on the device, or none of it.

    It backs up only nodes with enough hits and the nodes above them, and only data without a host
    copy (RES-5 demands that it backs up all of those). Where the policy is not write-through, an
    insert backs up nothing.

    Why: full data alone cannot be used where a window or a mamba state is needed. The page counts
    as backed up, and its prompt is computed again.

    Seen broken: https://github.com/sgl-project/sglang/issues/30057,
    https://github.com/sgl-project/sglang/issues/29204
    """
    call = step.operation
    if not isinstance(call, Insert) or not isinstance(step.outcome, Inserted):
        return
    yield from _backed_up_in_vain(step, call.key)
    if step.before.config.backup_hits is None:
        return
    before, after = rows_along(step.before, call.key), rows_along(step.after, call.key)
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


def _backed_up_in_vain(step: Step, key: Key) -> Iterator[str]:
    """Backups of data without enough hits, or with a host copy already."""
    state, threshold = step.after, step.after.config.backup_hits
    due = {stop.node.node_id for stop in _due(step, key)}
    before = rows_along(step.before, key)
    for node_id, component in enqueued_parts(step):
        node = state.nodes.get(node_id)
        if node is None:
            continue
        backed_up = f"{component} data of {state.describe(node)} was backed up"
        if threshold is None:
            yield f"{backed_up} by an insert under {state.config.write_policy}"
        elif node_id not in due:
            yield f"{backed_up}; it is above no node that was hit {threshold} times"
        elif slot_of(_last_row(before, state.end(node)), component, CPU) is not None:
            yield f"{backed_up}, and had a host copy"


def _due(step: Step, key: Key) -> Sequence[Stop]:
    """The path down to its deepest node with enough hits."""
    path, threshold = path_of(step.after, key), step.after.config.backup_hits or 0
    hit = [at for at, stop in enumerate(path) if stop.node.hit_count >= threshold]
    return path[: hit[-1] + 1] if hit else []


def _last_row(rows: list[PageRow], end: int) -> PageRow | None:
    """The row of the last page before `end`; None where there was none."""
    return rows[end - 1] if end <= len(rows) else None


def _miscounted(
    step: Step,
    call: InsertHost,
    outcome: HostInserted,
    before: list[PageRow],
    after: list[PageRow],
) -> Iterator[str]:
    """Counts of a host insert that do not match the pages of its key."""
    gained = [
        page
        for page, row in enumerate(after)
        if row.slot(FULL, CPU) is not None
        and slot_of(before[page] if page < len(before) else None, FULL, CPU) is None
    ]
    settled = sum(
        row.slot(FULL, CPU) is not None and row.backing[COLUMN[FULL]] is None
        for row in before[call.start_pages :]
    )
    placed = sum(page >= len(before) for page in gained)
    exact, present = step.before.config.backed_parents, outcome.present_pages
    for name, count, true in (
        ("placed", outcome.placed_pages, placed),
        ("refilled", outcome.refilled_pages, len(gained) - placed),
        ("present", present, settled if exact else min(settled, present)),
    ):
        if count != true:
            yield f"{count} pages are reported as {name}, and {true} are"
    given = len(call.payload.full)
    counted = outcome.placed_pages + outcome.refilled_pages + present + outcome.dropped_pages
    if counted != given:
        yield f"{given} pages were given, and {counted} are accounted for"
    early = [page for page in gained if page < call.start_pages]
    if early:
        yield f"pages {early} have a host copy now; bytes came from page {call.start_pages} on"


def _misplaced(
    step: Step, call: InsertHost, page: int, was: PageRow | None, now: PageRow
) -> Iterator[str]:
    """Changes of a page of the key other than receiving the data that was fetched for it."""
    where, end = page_in_words(step.after, now), len(call.key)
    brought = {SWA: len(call.payload.swa), MAMBA: len(call.payload.mamba)}
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
    if was.slot(FULL, CPU) not in (None, now.slot(FULL, CPU)):
        yield (
            f"{where} had full slot {was.slot(FULL, CPU)} on {CPU}, and has "
            f"{in_words(now.slot(FULL, CPU))}"
        )
    for field in ("device", "loading", "backing", "lock_refs", "hit_count"):
        if getattr(was, field) != getattr(now, field):
            yield f"{where}: {field} was {getattr(was, field)} and is {getattr(now, field)}"
