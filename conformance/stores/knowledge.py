"""What is known of the pages of a store after a call: `spec.stores.known` applied to one step."""

from __future__ import annotations

from collections.abc import Iterable

from kvcanon.spec.stores.calls import Answered, Failed, PutCall, RemoveCall, RunCall, StoreStep
from kvcanon.spec.stores.findings import (
    counted_of,
    in_every_pool,
    puts_of,
    reads_of,
    room_left,
    said_of,
)
from kvcanon.spec.stores.known import (
    Doubt,
    KnownPages,
    PageKnown,
    StoredName,
    after_doubt,
    after_put,
    after_removal,
    after_said,
)
from kvcanon.spec.stores.pages import parent_of


def known_after(step: StoreStep) -> KnownPages:
    """What is known after a step."""
    identity, life = step.handle.identity, step.handle.life
    changes = []
    if isinstance(step.call, PutCall):
        answers = {key: done for key, _, done in puts_of(step)}
        failed = isinstance(step.answer, Failed) and step.answer.killed
        doubt = Doubt.KILLED if failed else Doubt.REFUSED
        known = step.before
        for key, content in step.call.pages:
            done = answers.get(key) is True
            parent = parent_of(key, identity.page_size)
            parted = parent is not None and not known.of(identity, parent).sure
            now = after_put(
                known.of(identity, key), content, life, done=done, doubt=doubt, parted=parted
            )
            known = known.changed([((identity, key), now)])
        return evicted_by(step, known)
    if isinstance(step.call, RemoveCall):
        if (
            isinstance(step.answer, Answered)
            and not step.situation.stalled
            and not step.situation.recovering
        ):
            changes = [after_removal(step.before.of(identity, key)) for key in step.call.keys]
        else:
            changes = [
                after_doubt(step.before.of(identity, key), Doubt.EVICTED) for key in step.call.keys
            ]
        return step.before.changed(
            ((identity, key), now) for key, now in zip(step.call.keys, changes, strict=True)
        )
    if step.situation.stalled or step.situation.recovering:
        return step.before
    return step.before.changed(_said(step))


def evicted_by(step: StoreStep, known: KnownPages) -> KnownPages:
    """What is known after a put for which the store may have evicted."""
    left = room_left(step)
    if left is None or left >= 0:
        return known
    return known.changed(
        (name, after_doubt(page, Doubt.EVICTED)) for name, page in known.pages.items()
    )


def _said(step: StoreStep) -> Iterable[tuple[StoredName, PageKnown]]:
    """What the store has said of pages, by a get, an exists or a run."""
    identity = step.handle.identity
    for key, size, read in reads_of(step):
        known = step.before.of(identity, key)
        if known.contents and size >= len(known.contents[0]):
            yield (identity, key), after_said(known, there=read.length is not None)
    for key, there in said_of(step):
        known = step.before.of(identity, key)
        if known.contents:
            yield (identity, key), after_said(known, there=bool(there))
    counted = counted_of(step)
    if counted is not None and isinstance(step.call, RunCall):
        for key in step.call.keys[: max(0, counted)]:
            for each in in_every_pool(step, key):
                known = step.before.of(identity, each)
                if known.contents:
                    yield (identity, each), after_said(known, there=True)
