"""EVICT, continued: under write_back, the copy of a victim fails.

An eviction waits for the copy of its victims, and the engine reports that it failed. The caller
still needs the slots, and another try may fail as well; so the victims leave all the same, as where
the host has no room. (If the engine raises, the caller gets its error and no slots, and the victims
stay: ASYNC-16.)

What readers get wrong: a failed copy has filled its host slots with nothing. To keep them, or to
announce them, hands another request bytes that were never written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kvcanon.spec.law import Kind, LawClass, Need, Premise, law
from kvcanon.spec.laws import bounds
from kvcanon.spec.laws.comparison import page_in_words, slot_of
from kvcanon.spec.laws.copies import failed_victims
from kvcanon.spec.transfer import EngineCalls
from kvcanon.spec.types import CPU, GPU, Component, Slot
from kvcanon.spec.views import PageRow, Step


def _copied_again(asked: EngineCalls | None) -> set[tuple[Component, Slot]]:
    """The device slots of orders of a step that did not fail."""
    return {
        (copy.component, source)
        for order in ([] if asked is None else asked.orders)
        if asked is not None and order.transfer_id not in asked.failed
        for copy in order.copies
        for source in copy.sources
    }


@law(
    "EVICT-9",
    Kind.STEP,
    LawClass.SOUND,
    premise=Premise[Step](
        "a copy of a victim that failed while the call waited for it",
        lambda step: bool(failed_victims(step)),
    ),
    needs=(Need.SNAPSHOT, Need.TRANSFERS, Need.ENDS),
    enabled_if=bounds.writes_back,
)
def failed_copies_count_for_nothing(step: Step) -> Iterator[str]:
    """A copy of victims that fails while an eviction waits for it leaves nothing on the host.

    Its host slots are free again. The victims leave the device all the same, as EVICT-1 demands:
    what has no other copy on the host is gone, with the data below it, which no prefix reaches any
    more. A cache may instead order another copy in the same call. By EVICT-8 all data whose copy
    did not fail is kept.

    Why: the host slots of a failed copy have the bytes of somebody else. A prefix that is loaded
    from them is wrong for every request that shares it.

    Seen broken: not seen
    """
    failed, again = failed_victims(step), _copied_again(step.asked)
    for change in step.changes if failed else ():
        if change.before is not None:
            yield from _copies_left(step, change.before, change.after, failed.keys() - again)


def _copies_left(
    step: Step, was: PageRow, now: PageRow | None, failed: Collection[tuple[Component, Slot]]
) -> Iterator[str]:
    for component in step.before.config.components:
        source, host = was.slot(component, GPU), slot_of(now, component, CPU)
        if source is not None and host is not None and (component, source) in failed:
            yield (
                f"{page_in_words(step.before, was)}: the copy of its {component} data to {CPU} "
                f"failed, and it has slot {host} there"
            )
