"""Writes a witness as a short sequence of pictures: before, the call, after; correct and faulty."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from attrs import field, frozen

from kvcanon.conformance.check.result import CodeLine
from kvcanon.conformance.report.answer_text import answer_in_words
from kvcanon.conformance.report.call_code import code_lines, shortened
from kvcanon.lab.mutants.faulty import what_goes_wrong
from kvcanon.lab.site.tree_picture import draw_state, nodes_named
from kvcanon.lab.site.witness import CallScene, PlayedWitness
from kvcanon.spec.events import AllBlocksCleared, BlockRemoved, Event
from kvcanon.spec.law import Kind

MOST_PICTURES = 3
"""Pictures of the states that lead to the call; earlier ones are calls in the list alone."""
LONGEST_CODE = 150


@frozen
class Pictures:
    """The pictures of pages, by name; a page has their places only."""

    by_name: dict[str, str] = field(factory=dict)

    def add(self, name: str, drawn: str) -> str:
        """Keep a picture, and return its place: HTML that the site's hook replaces."""
        self.by_name[name] = drawn
        return (
            f'<div class="kv-scroll" role="region" tabindex="0" aria-label="picture: {name}">'
            f'<span data-kv-picture="{name}"></span></div>'
        )


def witness_section(witness: PlayedWitness, pictures: Pictures) -> Iterator[str]:
    """The Markdown of a witness: its fault, its pictures, and all its calls."""
    vector = witness.vector
    lines = code_lines([scene.call for scene in witness.scenes])
    yield f"### Witness {vector.vector_id}"
    fault = escape(what_goes_wrong(witness.mutant), quote=False)
    mutant = witness.mutant
    here = "" if mutant.law_id == vector.law_id else f"../{mutant.law_id}/index.md"
    yield f"A cache with this fault breaks it: {fault} [Its code]({here}#fault-{mutant.name})."
    before = _leading(witness)
    if before is None:
        yield "The cache is new when the call comes."
    else:
        for scene, at in before:
            yield _figure(
                f"{vector.vector_id}-{at}",
                f"After {_call_in_html(lines[at])}",
                scene,
                pictures,
            )
    last = witness.scenes[-1]
    yield f"Then comes the call that breaks the law: {_call_in_html(lines[-1])}."
    name = vector.vector_id
    if witness.correct is not None:
        answer = escape(answer_in_words(witness.correct.call.answer), quote=False)
        answered = f", which answered “{answer}”" if answer != "done" else ""
        caption = f"A correct cache afterwards{answered}"
        yield _figure(f"{name}-correct", caption, witness.correct, pictures)
    yield _figure(
        f"{name}-broken",
        "The cache with the fault afterwards",
        last,
        pictures,
        broken=witness.text,
    )
    yield f'<p class="kv-said"><strong>{vector.law_id}</strong>: {escape(witness.text)}</p>'
    yield _all_calls(lines)


def _leading(witness: PlayedWitness) -> Sequence[tuple[CallScene, int]] | None:
    """The last scenes before the broken call that changed what a picture shows."""
    changing = [(scene, at) for at, scene in enumerate(witness.scenes[:-1]) if scene.changes]
    return changing[-MOST_PICTURES:] or None


def _figure(
    name: str, caption: str, scene: CallScene, pictures: Pictures, *, broken: str = ""
) -> str:
    """One state with its caption, and what was emitted on the way to it."""
    marked = nodes_named(broken)
    title = _plain(caption)
    place = pictures.add(name, draw_state(scene.after, title, marked))
    events = _emitted(scene)
    told = f" Emitted: {'; '.join(events)}." if events else ""
    class_ = "kv-figure kv-faulty" if broken else "kv-figure"
    return (
        f'<figure class="{class_}"><figcaption>{caption}.{escape(told)}</figcaption>'
        f"{place}</figure>"
    )


def _emitted(scene: CallScene) -> list[str]:
    """The events that a call emitted, in words."""
    known = len(scene.before.events)
    new = scene.after.events[known:] if scene.after.events[:known] == scene.before.events else ()
    return [event_in_words(event) for event in new]


def event_in_words(event: Event) -> str:
    """An event, as "store of 1f2e3d4c on GPU"."""
    if isinstance(event, AllBlocksCleared):
        return "all blocks cleared"
    verb = "remove" if isinstance(event, BlockRemoved) else "store"
    return f"{verb} of page {event.block_hash.hex()[:8]} on {event.medium.value}"


def _call_in_html(line: CodeLine) -> str:
    code, answer = shortened(line.code), line.answer.partition("<- ")[0].strip()
    code = code if len(code) <= LONGEST_CODE else f"{code[:LONGEST_CODE]}…"
    answered = f" → {escape(answer)}" if answer and answer != "done" else ""
    return f"<code>{escape(code)}</code>{answered}"


def _plain(caption: str) -> str:
    return caption.replace("<code>", "").replace("</code>", "").replace("&#x27;", "'")


def _all_calls(lines: Sequence[CodeLine]) -> str:
    """Every call of the witness, folded."""
    text: list[str] = []
    for line in lines:
        text += line.before
        answer = f"  # {line.answer}" if line.answer and line.answer != "done" else ""
        text.append(f"{shortened(line.code)}{answer}")
    body = "\n".join(f"    {line}" for line in text)
    return f'??? note "All {len(lines)} calls"\n\n    ```python\n{body}\n    ```'


def kinds_in_words() -> Mapping[Kind, str]:
    """What each kind of law checks."""
    return {
        Kind.STATE: "a state: it is checked in every state of the cache",
        Kind.STEP: "a step: it compares the states before and after an operation",
        Kind.STREAM: "a stream: it checks the events in order",
    }
