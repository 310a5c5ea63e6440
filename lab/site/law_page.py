"""The page of one law, as Markdown."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

from attrs import frozen

from kvcanon.conformance.laws.history import history_of
from kvcanon.conformance.laws.laws_json import links_of, members_in_words, source_of
from kvcanon.lab.mutants.faulty import what_goes_wrong
from kvcanon.lab.mutants.planted.entry import Mutant
from kvcanon.lab.site.chapters.code_links import linked_code
from kvcanon.lab.site.chapters.places import SpecNames
from kvcanon.lab.site.evidence import LawEvidence, ProvedClaim, claims_about
from kvcanon.lab.site.faults import EngineFault, faults_of
from kvcanon.lab.site.law_code import code_without_docstring
from kvcanon.lab.site.source_pages import source_link
from kvcanon.lab.site.steps import Pictures, kinds_in_words, witness_section
from kvcanon.lab.site.witness import PlayedWitness
from kvcanon.spec.law import LAWS, Law, LawClass, Need

UP = "../.."
"""From a law's page to the top of the site."""
TRACKERS: Mapping[str, str] = {
    "sgl": "sgl-project/sglang",
    "vllm": "vllm-project/vllm",
    "vllm-ascend": "vllm-project/vllm-ascend",
    "lmc": "LMCache/LMCache",
    "trt": "NVIDIA/TensorRT-LLM",
    "dynamo": "ai-dynamo/dynamo",
}
"""Short names of issue trackers, as the kill matrix uses them."""

_ISSUE = re.compile(
    r"https://github\.com/(?P<repo>[\w.-]+/[\w.-]+)/(?:issues|pull)/(?P<number>\d+)"
)


@frozen
class Book:
    """What all pages are made from."""

    checkout: Path
    evidence: LawEvidence
    mutants: tuple[Mutant, ...]
    witnesses: Mapping[str, Sequence[PlayedWitness]]
    """By law."""
    engines: Mapping[str, str]
    faults: tuple[EngineFault, ...]
    names: SpecNames


def law_page(law: Law, book: Book, pictures: Pictures) -> str:
    """The whole page of a law."""
    ids = list(LAWS)
    at = ids.index(law.law_id)
    around = [
        f"[{words}](../{ids[to]}/index.md)"
        for words, to in ((f"← {ids[at - 1]}", at - 1), (f"{ids[(at + 1) % len(ids)]} →", at + 1))
        if 0 <= to < len(ids)
    ]
    first, *more = (_one_line(part) for part in law.statement.split("\n\n"))
    parts = [
        f"# {law.law_id}: {law.name.replace('_', ' ')}",
        f"**{_text(first)}**",
        *map(_text, more),
        f"[Words of the laws]({UP}/glossary.md#words-of-the-laws).",
        "## Why",
        *(_text(_begun(_one_line(part))) for part in law.why.split("\n\n")),
        "## Seen broken",
        _seen_broken(law),
        "## What it needs",
        _needs(law),
        "## In pictures",
        *_pictures(law, book, pictures),
        "## The law as code",
        *_code(law, book),
        "## Mutants that test it",
        *_mutants(law, book),
        "## What is exhausted and proved",
        *_settled(law, book),
        "## Which engines broke it",
        _engines(law, book),
        f"{' · '.join(around)} · `kvcanon laws {law.law_id}` prints the law in a terminal.",
    ]
    title = f"---\ntitle: {law.law_id} {law.name.replace('_', ' ')}\nsearch:\n  boost: 1.5\n---\n"
    return title + "\n\n".join(parts) + "\n"


def link_to_law(law_id: str, base: str = "..") -> str:
    """A link to a law's page; the bare id where there is none."""
    return f"[{law_id}]({base}/{law_id}/index.md)" if law_id in LAWS else law_id


def upstream_link(upstream: str) -> str:
    """A historical bug, as "A5 sgl#38482", as a link to it where its tracker is known."""
    found = re.search(r"([\w-]+)#(\d+)", upstream)
    if found is None or found[1] not in TRACKERS:
        return "" if upstream == "none" else upstream
    return f"[{found[0]}](https://github.com/{TRACKERS[found[1]]}/issues/{found[2]})"


def _seen_broken(law: Law) -> str:
    said = _begun(_one_line(law.seen_broken))
    for url in links_of(law):
        issue = _ISSUE.match(url)
        if issue:
            said = said.replace(url, f"[{issue['repo']}#{issue['number']}]({url})", 1)
    return said if said.endswith(".") else f"{said}."


def _needs(law: Law) -> str:
    words, classes = members_in_words(Need), members_in_words(LawClass)
    since = history_of(law.law_id).words
    lines = [
        (
            f"It is the law of {kinds_in_words()[law.kind]}. It is a {law.level.value.upper()}. "
            f"[Since {since}]({UP}/spec/history.md)."
        ),
        "",
        f"Its class is *{law.law_class}*: {_begun_small(classes[law.law_class])}{_chosen(law)}",
        "",
        (
            f"- **Exercised by**: {_text(law.premise.words)}. A run in which this never happens "
            "says nothing about the law, and reports it as not exercised."
        ),
    ]
    for need in sorted(law.needs):
        said = words[need]
        lines.append(f"- **Needs {need.value}**{f': {_text(said)}' if said else '.'}")
    if law.from_outside is None:
        lines.append("- Only a cache that shows its states can be judged by it.")
    elif not law.from_outside:
        lines.append("- The methods that every cache has show it; a snapshot shows more.")
    else:
        groups = " and ".join(
            " or ".join(f"`{method.__name__}`" for method in group) for group in law.from_outside
        )
        lines.append(f"- Without snapshots it shows in a cache that has {groups}.")
    return "\n".join(lines)


def _begun_small(sentence: str) -> str:
    """A sentence as a part of another."""
    return sentence[:1].lower() + sentence[1:]


def _chosen(law: Law) -> str:
    """How a cache says that it chooses otherwise."""
    if law.chosen_by is None:
        return ""
    return f" A cache that declares `Profile({law.chosen_by}=Choosing.OWN)` is not judged by it."


def _pictures(law: Law, book: Book, pictures: Pictures) -> Iterator[str]:
    witnesses = book.witnesses[law.law_id]
    yield (
        "A witness is a short list of calls in which a cache with a planted fault breaks the law. "
        f"[How to read the pictures]({UP}/reading-the-pictures.md)."
    )
    for at, witness in enumerate(witnesses):
        section = "\n\n".join(witness_section(witness, pictures))
        if at:
            heading, _, body = section.partition("\n\n")
            folded = textwrap.indent(body, "    ")
            title = heading.removeprefix("### ")
            section = (
                f'??? example "{title}: {_quoted(what_goes_wrong(witness.mutant))}"\n\n{folded}'
            )
        yield section


def _quoted(text: str) -> str:
    return escape(text, quote=False).replace('"', "'")


def _code(law: Law, book: Book) -> Iterator[str]:
    file, line = source_of(law)
    place = f"[`{file}`, line {line}]({source_link(file, UP, line)})"
    yield (
        f"{place}. The text of the law is its docstring. A name leads to [where it is "
        f"explained]({UP}/spec/index.md)."
    )
    module = inspect.unwrap(law.check).__module__
    yield linked_code(code_without_docstring(law), module, book.names, UP)


def _mutants(law: Law, book: Book) -> Iterator[str]:
    own = [each for each in book.mutants if each.law_id == law.law_id]
    if not own:
        yield "None is planted for this law alone."
        return
    yield (
        "Faults that are planted in the plain cache to break this law, and how soon each way of "
        "judging finds them: the law that broke first (`+2`: and two more in the same step), after "
        f"how many cases / operations. [The whole matrix]({UP}/mutants.md)."
    )
    rows = ["| fault | modelled on | by states | from outside | vector |", "|---|---|---|---|---|"]
    for mutant in own:
        hunted = book.evidence.hunted.get(mutant.name)
        cells = (hunted.by_states, hunted.from_outside, hunted.vector) if hunted else ("", "", "")
        upstream = upstream_link(mutant.upstream) or "none"
        rows.append(f"| `{mutant.name}` | {upstream} | {' | '.join(cells)} |")
    yield "\n".join(rows)
    for mutant in own:
        module = inspect.getmodule(mutant.plant)
        file = Path(str(module.__file__)).resolve().relative_to(book.checkout) if module else Path()
        _, line = inspect.getsourcelines(mutant.plant)
        code = textwrap.indent(inspect.getsource(mutant.plant).rstrip(), "    ")
        yield (
            f'<a id="fault-{mutant.name}"></a>\n\n'
            f'???+ bug "{mutant.name}: {_quoted(what_goes_wrong(mutant))}"\n\n'
            f"    [`{file}`, line {line}]({source_link(str(file), UP, line)})\n\n"
            f"    ```python\n{code}\n    ```"
        )
    yield from _mutants_that_show_here(law, book)


def _mutants_that_show_here(law: Law, book: Book) -> Iterator[str]:
    """Faults of other laws that break this law first: the cause may be one of those."""
    rows = []
    for mutant in book.mutants:
        hunted = book.evidence.hunted.get(mutant.name)
        if hunted is None or mutant.law_id == law.law_id:
            continue
        ways = {"by states": hunted.by_states, "from outside": hunted.from_outside}
        first = [way for way, cell in ways.items() if re.match(rf"{law.law_id}\b", cell)]
        if first:
            page = f"../{mutant.law_id}/index.md#fault-{mutant.name}"
            words = _quoted(what_goes_wrong(mutant))
            rows.append(f"| {words} | [{mutant.law_id}]({page}) | {', '.join(first)} |")
    if rows:
        yield (
            "**These faults break this law first**, though they are planted against another one, "
            "whose page has their code. If the faults above are not like yours, look here."
        )
        yield "\n".join(["| fault | law | judged |", "|---|---|---|", *rows])


def _settled(law: Law, book: Book) -> Iterator[str]:
    explored = book.evidence.explored.get(law.law_id)
    if explored is None:
        yield f"No [exploration]({UP}/explore.md) on record has exercised this law."
    else:
        scopes = "every scope" if explored.scopes == "all" else f"the scopes {explored.scopes}"
        yield (
            f"**Exhausted**: the plain cache keeps it in every state of {scopes} "
            f"([explored]({UP}/explore.md#where-each-law-was-exercised)). That says nothing beyond "
            f"these scopes; [limits]({UP}/limits.md) says what it is worth."
        )
    claims = list(claims_about(law, book.evidence))
    if not claims:
        claim = f"[claim]({UP}/prove.md)"
        yield f"**Proved**: nothing. The law calls no oracle function, and no {claim} is about it."
        return
    yield (
        f"**Proved**, of the oracle functions that its code calls and of steps that keep it, "
        f"each [within its bounds]({UP}/prove.md):"
    )
    yield "\n".join(_claim(claim) for claim in claims)


def _claim(claim: ProvedClaim) -> str:
    verdicts = sorted({verdict.partition(",")[0] for verdict in claim.verdicts})
    return f"- `{claim.name}`: {claim.words} {'; '.join(verdicts).capitalize()}."


def _engines(law: Law, book: Book) -> str:
    found = faults_of(law.law_id, book.faults)
    if not found:
        return f"None that was judged, as far as [the findings]({UP}/findings.md) go."
    rows = ["| engine | cache | releases | fault |", "|---|---|---|---|"]
    rows += [
        f"| {book.engines[each.engine]} | {each.cache} | {', '.join(each.releases)} "
        f"| [{each.title}]({UP}/findings/{each.page}) |"
        for each in found
    ]
    return "\n".join(rows)


def _begun(text: str) -> str:
    """A sentence with its first letter in upper case; a link stays as it is."""
    return text if text.startswith("https:") else text[:1].upper() + text[1:]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _text(text: str) -> str:
    """Prose of a docstring as Markdown: ids of laws are links, and nothing is HTML.

    So is the first "By profile": what a profile can declare is on a page of its own.
    """
    escaped = text.replace("<", "&lt;")
    escaped = escaped.replace("By profile", f"[By profile]({UP}/freedoms.md#by-profile)", 1)
    return re.sub(r"\b[A-Z]+-[0-9]+\b", lambda match: link_to_law(match[0]), escaped)
