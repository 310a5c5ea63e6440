"""The specification as a document: it has every name, its formulas and its picture are true."""

from __future__ import annotations

import ast
import inspect
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache, wraps
from hashlib import sha256
from math import ceil, floor
from typing import Any

import pytest
from attrs import evolve

from kvcanon.conformance.check.plan import CheckStage
from kvcanon.conformance.corpus import read_corpus
from kvcanon.conformance.laws.history import LawHistory, read_history
from kvcanon.conformance.vectors import read_vectors
from kvcanon.lab.mutants.kill_matrix import NO_LAWS
from kvcanon.lab.reach.count import CACHE, numbered_cases
from kvcanon.lab.site.chapters.chapters import ANCHORS, anchors_of, anchors_text, chapters
from kvcanon.lab.site.chapters.code_types import names_in
from kvcanon.lab.site.chapters.formulas import FORMULAS, policy_table
from kvcanon.lab.site.chapters.page_states import (
    MOVES,
    SETTLES,
    PageState,
    draw_page_states,
    state_of,
)
from kvcanon.lab.site.chapters.places import CHAPTERS, SpecNames, anchor_of, spec_names
from kvcanon.lab.site.chapters.print_edition import print_edition
from kvcanon.lab.site.glossary_links import linked, terms, with_anchors
from kvcanon.lab.site.law_code import code_without_docstring
from kvcanon.lab.site.law_history import digest_of, history_text, moved_on
from kvcanon.lab.site.law_links import with_law_links
from kvcanon.lab.site.steps import Pictures
from kvcanon.reference import ReferenceCache
from kvcanon.spec import hashing
from kvcanon.spec.law import LAWS, LawClass
from kvcanon.spec.operations import METHODS
from kvcanon.spec.oracle.eviction import EvictionPolicy
from kvcanon.spec.refusals import REFUSALS
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import Namespace
from paths import DOCS, ROOT

Moved = tuple[PageState, PageState, str]
"""A page was in the one state before a call of a method, and in the other after it."""


@cache
def names() -> SpecNames:
    """The names of this checkout."""
    return spec_names(ROOT)


@cache
def pages() -> Mapping[str, str]:
    """Every page of the document."""
    return chapters(ROOT, names(), Pictures())


# Completeness and addresses.


def test_every_public_name_of_the_spec_has_a_section() -> None:
    """No chapter of spec/ but the laws is left out, and no name of one."""
    modules = {name.split(".")[2] for name in names().modules if name.count(".") > 1}
    explained = {name.partition(".")[0] for some in CHAPTERS.values() for name in some}
    assert modules - explained == {"laws"}
    anchors = set(anchors_of(pages()))
    for full_name, chapter in names().chapter_of.items():
        assert f"{chapter}.html#{anchor_of(full_name)}" in anchors, full_name


def test_addresses_stay() -> None:
    """No anchor is there twice, none that was published is gone, and the new ones are listed."""
    now = anchors_of(pages())
    assert [each for each, times in Counter(now).items() if times > 1] == []
    of_one_page = Counter(each.partition("#")[2] for each in now)
    assert [each for each, times in of_one_page.items() if times > 1] == []
    known = ANCHORS.read_text("utf-8").splitlines()
    assert sorted(set(known) - set(now)) == [], "an address that was published is gone"
    assert anchors_text(ANCHORS.read_text("utf-8"), now).splitlines() == known, (
        "run `python -m kvcanon.lab.site --anchors`"
    )


def test_new_addresses_are_added_and_none_is_taken_out() -> None:
    """The file of addresses only grows."""
    assert anchors_text("a.html#A\n", ["b.html#B"]) == "a.html#A\nb.html#B\n"


def test_operation_has_its_refusals_laws_and_events() -> None:
    """A section says by whom a call is refused, what holds after it, and what it emits."""
    parts = re.split(r"^## `(\w+)` \{ #op-\w+ \}$", pages()["operations"], flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert list(sections) == list(METHODS.values())
    for operation, method in METHODS.items():
        for error, ground in REFUSALS[operation].items():
            assert f"[`{error.__name__}`]" in sections[method]
            assert ground.words.partition(";")[0] in sections[method]
    assert "[LOCK-4]" not in sections["match"]
    assert "[MATCH-1](../laws/MATCH-1/index.md)" in sections["match"]
    assert "| GPU | stored | new on the device | root first |" in sections["insert"]
    assert "**Refused** never." in sections["poll"]
    assert "Recency of the usable prefix, and cuts. Nothing else." in sections["match"]


def test_laws_stand_by_class() -> None:
    """Each law is in the part of its class, once."""
    parts = re.split(r"^## \w+ \{ #class-(\w+) \}$", pages()["laws"], flags=re.MULTILINE)
    by_class = dict(zip(parts[1::2], parts[2::2], strict=True))
    for law in LAWS.values():
        assert [each for each in LawClass if f'id="{law.law_id}"' in by_class[each]] == [
            law.law_class
        ]


# Names in code.


@pytest.mark.parametrize("law_id", LAWS)
def test_names_in_the_code_of_a_law_are_links(law_id: str) -> None:
    """Each global name of spec/ leads somewhere, and so does each attribute of its types."""
    law = LAWS[law_id]
    module = inspect.unwrap(law.check).__module__
    code = code_without_docstring(law)
    found = names_in(code, module)
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Name):
            name = f"{module}.{node.id}"
            if names().address(name, "..") and node.id in dir(inspect.getmodule(law.check)):
                is_bound = (node.lineno, node.col_offset) not in found
                assert not is_bound or isinstance(node.ctx, ast.Store), ast.unparse(node)


def test_attributes_in_laws_are_links() -> None:
    """Of all attributes that are members of spec/, at most a hundredth has no link."""
    of_containers = {*dir(dict), *dir(set), *dir(list)}
    members = {m.name for d in names().definitions.values() for m in d.members} - of_containers
    bare, count = [], 0
    for law in LAWS.values():
        code = code_without_docstring(law)
        found = names_in(code, inspect.unwrap(law.check).__module__)
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Attribute) and node.attr in members:
                count += 1
                place = node.end_lineno or 0, (node.end_col_offset or 0) - len(node.attr)
                if place not in found or names().address(found[place], "..") is None:
                    bare.append(f"{law.law_id}: {ast.unparse(node)}")
    assert count > 1500
    assert len(bare) <= count / 100, bare


def test_an_attribute_leads_to_the_class_of_its_value() -> None:
    """`full` of a node is another member than `full` of slots."""
    code = "def f(node: NodeState, step: Step):\n    return node.full, step.outcome.slots.full\n"
    found = names_in(code, "kvcanon.spec.laws.match")
    assert found[2, 16] == "kvcanon.spec.snapshot.NodeState.full"
    assert found[2, 35] == "kvcanon.spec.operations.Matched.slots"


# Formulas.

DRAWN = 300
"""How many arguments are drawn for each formula."""


def bools(random: random.Random, length: int) -> tuple[bool, ...]:
    """Some truth values."""
    return tuple(random.random() < 0.6 for _ in range(length))


def counts(random: random.Random, length: int, most: int = 6) -> tuple[int, ...]:
    """Some small numbers from 1 on."""
    return tuple(random.randint(1, most) for _ in range(length))


def drawn_arguments(function: str, random: random.Random) -> dict[str, object]:
    """Arguments of a function with a formula."""
    size = random.randint(0, 5)
    lengths = counts(random, size)
    freed = random.randint(0, 9)
    values: dict[str, object] = {
        "lengths": lengths, "full": bools(random, size), "swa": bools(random, size),
        "state": bools(random, size), "window": random.randint(1, 9),
        "ours": counts(random, size, 2), "theirs": counts(random, random.randint(0, 5), 2),
        "end_pages": random.randint(0, 9), "window_tokens": random.randint(1, 20),
        "page_size": random.randint(1, 6), "start": random.randint(0, 5),
        "window_from": random.randint(0, 5), "needed": random.randint(0, 9), "free": freed,
        "lost": (freed, *counts(random, 2)), "short": tuple(random.choices((0, 1), k=3)),
        "freed": freed, "largest": random.randint(0, freed), "asked": random.randint(0, 9),
        "keys": tuple((each, random.randint(0, 2)) for each in counts(random, size, 2)),
        "order": tuple(random.sample(range(9), size)), "touched": tuple(random.sample(range(9), 3)),
        "backed": bools(random, size + 1), "parent": random.randbytes(32),
        "page": tuple(random.randrange(1 << 32) for _ in range(4)),
        "namespace": random.choice([Namespace(), Namespace("a", None, ""), Namespace("")]),
        "block_hash": random.randbytes(32), "length_tokens": random.randint(0, 40),
        "items": lengths, "at": random.randint(0, size), "owned": counts(random, size, 5),
        "capacity": random.randint(0, 6), "history": bools(random, size),
        "lock_refs": random.randint(0, 4), "ground_refs": random.randint(0, 4),
        "field": random.choice([None, b"", b"ab"]),
    }  # fmt: skip
    parameters = inspect.signature(function_named(function)).parameters
    return {name: values.get(name, random.random() < 0.5) for name in parameters}


def function_named(name: str) -> Callable[..., object]:
    """The function of the spec with a name."""
    (full,) = (each for each in names().chapter_of if each.rpartition(".")[2] == name)
    module = full.rpartition(".")[0]
    function: Callable[..., object] = getattr(__import__(module, fromlist=[name]), name)
    return function


@pytest.mark.parametrize("name", FORMULAS)
def test_formula_is_its_function(name: str) -> None:
    """A formula gives what its function returns, on drawn arguments."""
    function, source = function_named(name), random.Random(name)
    known = {
        "ceil": ceil, "floor": floor, "sha256": lambda data: sha256(data).digest(),
        **{each: getattr(hashing, each) for each in ("NAMESPACE_TAG", "encode_namespace")},
        "Namespace": Namespace,
    }  # fmt: skip
    results = set()
    for _ in range(DRAWN):
        arguments = drawn_arguments(name, source)
        wanted = function(**arguments)
        said = eval(FORMULAS[name], {**known, **arguments})  # noqa: S307  # A formula of ours.
        assert said == wanted, arguments
        results.add(repr(wanted))
    assert len(results) > 1, "the arguments that were drawn show nothing"


def test_policy_table_says_what_each_key_is() -> None:
    """The keys of the policies, read off the function, with its two parts."""
    table = policy_table()
    assert "| `lru` | 0 | `last_access` |" in table
    assert "| `lfu` | `hit_count` | `last_access` |" in table
    assert "| `filo` | 0 | -`created` |" in table
    assert "| `slru` | 0 below two hits, else 1 | `last_access` |" in table
    assert "| `priority` | `priority` | `last_access` |" in table
    assert len(table.splitlines()) == 2 + len(EvictionPolicy)


# The states of a page.


def pages_of(state: Snapshot) -> Iterator[tuple[object, PageState]]:
    """Each page of a tree, by its namespace and tokens, with its state."""
    for node in state.reachable():
        before = tuple(
            page for up in reversed(state.upwards[node.node_id][1:]) for page in up.pages
        )
        for at in range(len(node.pages)):
            yield (node.namespace, *before, *node.pages[: at + 1]), state_of(node.full)


class Watched(ReferenceCache):
    """The plain cache, whose pages are looked at around each call."""

    moves: set[Moved]


def seeing(name: str, method: Callable[..., Any], moves: set[Moved]) -> Callable[..., Any]:
    """A method that notes what moves in it."""
    entry = {"insert": PageState.HELD, "insert_host": PageState.STORAGE}.get(name, PageState.FREE)

    @wraps(method)
    def call(cache: ReferenceCache, *args: object, **kwargs: object) -> object:
        before = dict(pages_of(cache.snapshot()))
        answer = method(cache, *args, **kwargs)
        after = dict(pages_of(cache.snapshot()))
        for page in before.keys() | after.keys():
            was, now = before.get(page, entry), after.get(page, PageState.FREE)
            if was is PageState.HOST and now is PageState.BOTH and name == "insert":
                was = PageState.HELD  # It takes the request's slot.
            if was is not now and not (was is entry and now is PageState.FREE):
                moves.add((was, now, name))
        return answer

    return call


@cache
def observed() -> frozenset[Moved]:
    """What moves in vectors and drawn cases, on the plain cache."""
    moves = set[Moved]()
    for name in {*METHODS.values()} - {"poll", "flush", "free", "allocate"}:
        setattr(Watched, name, seeing(name, getattr(ReferenceCache, name), moves))
    for name in ("poll", "flush"):  # They settle by `settle`, which is then looked at.
        setattr(Watched, name, seeing(name, getattr(ReferenceCache, name), moves))
    cases = numbered_cases(CACHE, 1, CheckStage.WALKER)
    watched = evolve(cases.base.adapter, make=Watched)
    trial = evolve(cases.base, adapter=watched, judges=NO_LAWS)
    for vector in read_vectors():
        trial.play(vector.case)
    for kept in read_corpus():
        trial.play(kept.case)
    for number in range(24):
        trial.play(cases.case(number))
    return frozenset(moves)


def reached(start: PageState, call: str) -> set[PageState]:
    """The states to which drawn moves of a call lead."""
    found = {start}
    for _ in PageState:
        found |= {each.end for each in MOVES if call in each.calls and each.start in found}
    return found - {start}


@pytest.mark.unsampled
def test_picture_has_every_move_of_the_plain_cache_and_no_other() -> None:
    """A page moves as it is drawn; one call may make several moves."""
    moves = observed()
    wrong = [
        (start, end, call)
        for start, end, call in moves
        if call != "reset" and end not in reached(start, call)
    ]
    assert wrong == []
    of_requests = {PageState.FREE, PageState.HELD}
    # All three settle: `poll` is `settle` of what has arrived, and `flush` waits before it.
    moves = moves | {(start, end, "settle") for start, end, call in moves if call in SETTLES}
    drawn = {(each.start, each.end, call) for each in MOVES for call in each.calls}
    several = [each for each in moves if each not in drawn]
    for move in MOVES:
        if {move.start, move.end} <= of_requests:
            continue  # `allocate` and `free` are about slots, of which no tree tells a page.
        for call in {"settle" if each in SETTLES else each for each in move.calls}:
            assert (move.start, move.end, call) in moves or any(
                called == call
                and (start is move.start or move.start in reached(start, call))
                and (end is move.end or end in reached(move.end, call))
                for start, end, called in several
            ), f"{move.start} to {move.end} by {call} was never seen"


def test_picture_names_every_state_and_move() -> None:
    """The picture has a box for each state, and its description has every move."""
    drawn = draw_page_states()
    assert all(f">{state}</text>" in drawn for state in PageState)
    assert drawn.count("marker-end") == len(MOVES)
    assert "tree to backing: insert, evict, load_back" in drawn


# History.


def test_history_is_that_of_the_laws() -> None:
    """Each law has its version, and no law has changed without a note."""
    assert list(read_history()) == list(LAWS)
    assert moved_on(read_history(), LAWS) == read_history(), (
        "a law is new or changed: run `python -m kvcanon.lab.site --history`"
    )


def test_history_notes_what_a_version_adds_and_changes() -> None:
    """A new law gets the version, a changed one an entry, once; a layout changes nothing."""
    law = LAWS["LOCK-1"]
    old = {law.law_id: LawHistory("0.1.0", (), digest_of(law))}
    assert moved_on({}, {law.law_id: law}, "0.2.0")[law.law_id].added == "0.2.0"
    assert moved_on(old, {law.law_id: law}, "0.2.0") == old
    spaced = evolve(law, statement=law.statement.replace(" ", "\n"))
    assert digest_of(spaced) == digest_of(law)
    changed = evolve(law, statement="Another sentence.")
    once = moved_on(old, {law.law_id: changed}, "0.2.0")
    assert once[law.law_id].words == "0.1.0, changed in 0.2.0"
    again = moved_on(once, {law.law_id: evolve(law, statement="A third.")}, "0.2.0")
    assert again[law.law_id].changed == ("0.2.0",)
    assert 'changed = ["0.2.0"]' in history_text(again)


# The words of the glossary.


def test_words_are_linked_where_they_are_used_first() -> None:
    """Once, not in code, headings or links; in guides only words that mean nothing else."""
    words = terms((DOCS / "glossary.md").read_text("utf-8"))
    assert words["tombstone"] == "term-tombstone"
    assert words["device leaf"] == words["leaf"]
    html = (
        "<h2>Tombstones</h2><summary>A receipt</summary>"
        "<p><code>tombstone</code> a tombstone, tombstones, a page</p>"
    )
    law = linked(html, "laws/RES-4/index.md", words)
    assert law.count("kv-term") == 2
    link = '<a class="kv-term" href="../../glossary.html#term-tombstone">tombstone</a>, tombstones'
    assert link in law
    guide = linked(html, "check.md", words)
    assert 'href="glossary.html#term-tombstone"' in guide
    assert "#term-page" not in guide
    assert linked(html, "glossary.md", words) == html


def test_glossary_has_an_anchor_for_each_word() -> None:
    """What is linked is there."""
    text = with_anchors((DOCS / "glossary.md").read_text("utf-8"))
    anchors = re.findall(r'<a id="(term-[^"]+)">', text)
    assert set(terms((DOCS / "glossary.md").read_text("utf-8")).values()) == set(anchors)
    assert len(anchors) == len(set(anchors)) > 80


# The edition for print.


def test_print_edition_is_whole_and_stands_alone() -> None:
    """All chapters, with links within the page or to the site, and nothing that is loaded."""
    pictures = Pictures()
    written = chapters(ROOT, names(), pictures)
    html = print_edition(written, pictures.by_name, "")
    ids = set(re.findall(r'id="([^"]+)"', html))
    assert {anchor.partition("#")[2] for anchor in anchors_of(written)} <= ids
    targets = set(re.findall(r'href="([^"]+)"', html))
    assert {each for each in targets if each.startswith("#")} <= {f"#{each}" for each in ids}
    assert all(each.startswith(("#", "https://")) for each in targets)
    assert "data-kv-picture" not in html
    assert "<svg" in html
    assert "src=" not in html


def test_ids_of_laws_lead_to_their_pages() -> None:
    """In sentences and tables, from any depth; not in code, headings, links, or on their page."""
    laws = frozenset({"REC-1", "RES-4"})
    html = "<h2>REC-1</h2><p>REC-1, <code>RES-4</code>, REC-10 (RES-4)</p>"
    one, other = (f'<a href="{{}}laws/{each}/index.html">{each}</a>' for each in ("REC-1", "RES-4"))
    guide = with_law_links(html, "events.md", laws)
    wanted = f"<h2>REC-1</h2><p>{one}, <code>RES-4</code>, REC-10 ({other})</p>"
    assert guide == wanted.replace("{}", "")
    chapter = with_law_links(html, "spec/wire.md", laws)
    assert chapter == wanted.replace("{}", "../")
    own = with_law_links("<p>REC-1 RES-4</p>", "laws/REC-1/index.md", laws)
    assert own == '<p>REC-1 <a href="../RES-4/index.html">RES-4</a></p>'
    assert with_law_links(html, "laws/index.md", laws) == html
