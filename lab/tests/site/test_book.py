"""The pages of the laws: all parts are there, from the spec, the mutants and the findings."""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from attrs import evolve
from jsonschema import Draft202012Validator

from action_steps import read_yaml
from built_site import BUILD, built_site
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.laws.laws_json import SCHEMA, laws_json
from kvcanon.conformance.laws.symptoms import symptoms
from kvcanon.lab.site import site_links
from kvcanon.lab.site.__main__ import main as site_main
from kvcanon.lab.site.badges import badges
from kvcanon.lab.site.chapters.chapters import ABOUT
from kvcanon.lab.site.evidence import operations_of, oracle_functions
from kvcanon.lab.site.faults import read_faults
from kvcanon.lab.site.figures import figures
from kvcanon.lab.site.freshness import is_fresh, sources_digest
from kvcanon.lab.site.law_code import code_without_docstring
from kvcanon.lab.site.law_page import Book, law_page
from kvcanon.lab.site.site import llms_txt, read_book
from kvcanon.lab.site.source_pages import SourcePages
from kvcanon.lab.site.state_words import describe_state
from kvcanon.lab.site.steps import Pictures
from kvcanon.lab.site.symptoms import PAGE, symptoms_page
from kvcanon.lab.site.tables import TABLES, page_with_tables
from kvcanon.lab.site.tree_picture import draw_state
from kvcanon.spec.law import LAWS, SITE
from paths import DOCS, ROOT

SECTIONS = [
    "Why",
    "Seen broken",
    "What it needs",
    "In pictures",
    "The law as code",
    "Mutants that test it",
    "What is exhausted and proved",
    "Which engines broke it",
]


@cache
def book() -> Book:
    """Everything that pages are made from, played once."""
    return read_book(ROOT)


@pytest.mark.parametrize("law_id", LAWS)
def test_page_has_every_part(law_id: str) -> None:
    """A page has its sections with text, the law's code, its mutants and its engines."""
    law, pictures = LAWS[law_id], Pictures()
    page = law_page(law, book(), pictures)
    parts = re.split(r"^## (.+)$", page, flags=re.MULTILINE)
    assert parts[1::2] == SECTIONS
    assert all(part.strip() for part in parts[2::2])
    assert law.statement.split("\n\n")[0].split()[0] in parts[0]
    assert f"def {law.name}(" in re.sub(r"<[^>]+>", "", page)
    for mutant in book().mutants:
        assert (f"def {mutant.name}(" in page) is (mutant.law_id == law_id)
    for fault in book().faults:
        assert (f"findings/{fault.page})" in page) is any(
            law_id in each.laws for each in book().faults if each.page == fault.page
        )
    assert pictures.by_name
    for name, drawn in pictures.by_name.items():
        assert f'data-kv-picture="{name}"' in page
        assert ET.fromstring(drawn).tag.endswith("svg")  # noqa: S314 # We drew it.


def test_page_leads_to_faults_of_other_laws_that_show_there() -> None:
    """A cut that forgets locks is LOCK-3's fault; without states an eviction shows it first."""
    fault, page = "cut_forgets_locks", "../LOCK-3/index.md#fault-cut_forgets_locks"
    hunted = book().evidence.hunted[fault]
    first = hunted.from_outside.partition(":")[0].partition(" ")[0]
    assert first != "LOCK-3"
    assert f"| [LOCK-3]({page}) | from outside |" in law_page(LAWS[first], book(), Pictures())
    assert page not in law_page(LAWS["NS-3"], book(), Pictures())


def test_last_picture_is_of_the_state_that_breaks_the_law() -> None:
    """The faulty state differs from the correct one, and the node that the text names is marked."""
    (witness, *_) = book().witnesses["ALLOC-8"]
    assert witness.text == "slot 1 of swa on GPU has no owner"
    assert witness.correct is not None
    faulty = draw_state(witness.scenes[-1].after, "faulty")
    assert "kv-lost" in faulty
    assert "kv-lost" not in draw_state(witness.correct.after, "correct")
    named = draw_state(witness.scenes[-1].after, "faulty", {3})
    assert named.count("kv-marked") == 1


def test_picture_shows_copies_locks_tombstones_and_free_slots() -> None:
    """Each has its own mark in a picture, and its words in the description."""
    drawn = figures()
    assert "kv-coming" in drawn["cache_copying"]
    assert "Copy 4 in flight, GPU → CPU: full of node 2" in drawn["cache_copying"]
    assert drawn["cache_lock"].count('class="kv-lock"') == 2
    assert "swa data nowhere" in drawn["cache_tombstone"]
    assert drawn["cache_page"].count('class="kv-free"') == 4
    state = book().witnesses["ALLOC-8"][0].scenes[-1].after
    assert describe_state(state) in draw_state(state, "x").replace("&gt;", ">")


def test_a_law_without_a_witness_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A law whose vectors are gone stops the build, with its id."""
    monkeypatch.setitem(LAWS, "TREE-9", evolve(LAWS["TREE-1"], law_id="TREE-9"))
    with pytest.raises(UsageError, match="TREE-9 has no vector"):
        read_book(ROOT)


def test_code_has_no_docstring_and_its_decorator() -> None:
    """The code of a law is that of the spec, without the text that the page has above."""
    code = code_without_docstring(LAWS["LOCK-1"])
    assert code.startswith("@node_law(")
    assert '"""' not in code
    assert "if data.lock_refs < 0:" in code


def test_oracle_functions_and_operations_are_those_of_the_code() -> None:
    """What a law calls is found in its code and in what that calls."""
    assert "usable_prefix" in oracle_functions(LAWS["MATCH-1"])
    assert oracle_functions(LAWS["TREE-1"]) == []
    assert operations_of(LAWS["EVICT-1"]) == ["evict", "evict_host"]


def test_site_has_a_page_for_each_law_and_each_file_that_is_linked() -> None:
    """Addresses are those that the laws print, and laws.json is as its schema says."""
    site, pages = built_site(), BUILD / "book" / "pages"
    assert (site / "laws" / "RES-4" / "index.html").is_file()
    for law_id in LAWS:
        assert (pages / "laws" / law_id / "index.md").is_file()
    assert LAWS["RES-4"].address == f"{SITE}laws/RES-4/"
    assert (pages / "source/spec/laws/residency.py.md").is_file()
    assert (pages / "source/docs/findings/faults.toml.md").is_file()
    written = json.loads((pages / "laws.json").read_text("utf-8"))
    assert written == json.loads(json.dumps(laws_json()))
    Draft202012Validator(json.loads(SCHEMA.read_text("utf-8"))).validate(written)
    assert "Law: " not in (pages / "index.md").read_text("utf-8")
    assert ".md`](" not in (pages / "index.md").read_text("utf-8")
    guide = (pages / "ten-minutes.md").read_text("utf-8")
    assert SITE not in guide
    assert "(laws/ALLOC-1/index.md)" in guide
    assert 'data-kv-picture="cache_split"' in guide


def test_site_is_fresh_until_a_file_changes(tmp_path: Path) -> None:
    """A site is built anew if a file changed, came or left, and not for what git ignores."""
    checkout, book = tmp_path / "checkout", tmp_path / "book"
    checkout.mkdir()
    book.mkdir()
    assert not is_fresh(checkout, book), "this is no checkout"
    subprocess.run(["git", "init", "--quiet", str(checkout)], check=True)  # noqa: S607
    (checkout / ".gitignore").write_text("ignored\n")
    (checkout / "a.md").write_text("one")
    assert not is_fresh(checkout, book), "nothing is built"
    (book / "built.txt").write_text(sources_digest(checkout))
    (checkout / "ignored").write_text("x")
    assert is_fresh(checkout, book)
    (checkout / "a.md").write_text("two")
    assert not is_fresh(checkout, book)
    (checkout / "a.md").write_text("one")
    assert is_fresh(checkout, book)
    (checkout / "b.md").write_text("")
    assert not is_fresh(checkout, book)


def test_config_has_the_address_that_the_laws_print() -> None:
    """The site is published where `SITE` says, and loads nothing from elsewhere."""
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    plain = read_yaml(re.sub(r"!!python\S+", "", text))
    assert plain["site_url"] == SITE
    assert plain["strict"] is True
    assert plain["theme"]["font"] is False
    assert plain["docs_dir"] == "build/book/pages"


def test_every_page_of_the_docs_is_in_the_navigation() -> None:
    """A reader finds each page of docs/ in the navigation."""
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    assert [page.name for page in DOCS.glob("*.md") if f": {page.name}\n" not in text] == []


def test_llms_txt_has_every_guide_and_law() -> None:
    """Each law stands there in a sentence, with its address."""
    text = llms_txt(ROOT)
    assert text.startswith("# kvcanon\n\n> kvcanon is an executable specification")
    assert all(f"({law.address})" in text for law in LAWS.values())
    assert all(f"({SITE}{page.stem}.html)" in text for page in DOCS.glob("*.md"))
    assert all(f"({SITE}spec/{name}.html)" in text for name in ABOUT)


def test_figures_and_badges_are_drawn_from_what_there_is() -> None:
    """The pictures in docs/figures are those that `make docs-figures` draws now."""
    for name, drawn in {**figures(), **badges(ROOT)}.items():
        assert (DOCS / "figures" / f"{name}.svg").read_text("utf-8") == drawn, name


@pytest.mark.parametrize(
    ("option", "row"),
    [
        ("--findings", "| vLLM | KVCacheManager | 0.33.0 |"),
        ("--freedoms", "| `joined_chains` |"),
        ("--rooms", "| [`conformance/explore`](../conformance/explore/__init__.py) |"),
    ],
)
def test_tables_are_those_of_today(option: str, row: str) -> None:
    """A page has the table that the checkout gives now."""
    page, text = page_with_tables(option, ROOT)
    assert page.read_text("utf-8") == text
    assert f"\n{row}" in text


def test_a_page_without_marks_is_refused(tmp_path: Path) -> None:
    """A table is written between its marks alone."""
    for name, _ in TABLES.values():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("no marks\n", "utf-8")
    with pytest.raises(UsageError, match=r"docs/findings.md has not 1 tables between <!-- made by"):
        page_with_tables("--findings", tmp_path)


def test_faults_are_those_of_the_pages() -> None:
    """Each fault names laws that its page or its engine's README names, and a page that exists."""
    _, faults = read_faults(ROOT)
    for fault in faults:
        file, _, anchor = fault.page.partition("#")
        page = (DOCS / "findings" / file).read_text("utf-8")
        readme = (DOCS / "findings" / fault.engine / "README.md").read_text("utf-8")
        for law_id in fault.laws:
            assert re.search(rf"\b{law_id}\b", page + readme), (fault.title, law_id)
        for release in fault.releases:
            assert release in page + readme
        if anchor:
            headings = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
            assert anchor in [each.lower().replace(" ", "-") for each in headings]


def test_every_page_of_a_fault_is_listed() -> None:
    """No page of docs/findings is left out of the list."""
    _, faults = read_faults(ROOT)
    listed = {fault.page.partition("#")[0] for fault in faults}
    pages = {
        str(page.relative_to(DOCS / "findings"))
        for page in DOCS.glob("findings/*/*.md")
        if page.name != "README.md"
    }
    assert pages <= listed


def test_broken_links_and_outside_loads_are_found(tmp_path: Path) -> None:
    """A link to no file or no anchor is found, and what a browser would fetch from outside."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "index.html").write_text('<h1 id="here">x</h1>', "utf-8")
    (tmp_path / "page.html").write_text(
        '<a href="sub/#here">1</a><a href="sub/#gone">2</a><a href="gone.html">3</a>'
        '<a href="https://example.org/">4</a><script src="https://example.org/x.js"></script>'
        '<link rel="canonical" href="https://example.org/">',
        "utf-8",
    )
    assert site_links.broken_links(tmp_path) == [
        "page.html loads https://example.org/x.js from outside",
        "page.html links to sub/#gone, and sub/index.html has no such anchor",
        "page.html links to gone.html, which is not there",
    ]


def test_links_out_of_the_docs_lead_to_pages_of_the_files(tmp_path: Path) -> None:
    """A link to a file of the checkout becomes one to its page; in code it stays."""
    writer = SourcePages(ROOT, tmp_path)
    writer.write_page(
        "docs/x.md", "[a](../spec/law.py) [b](check.md#x)\n```\n[c](../spec/law.py)\n```\n"
    )
    writer.write_wanted()
    assert (tmp_path / "x.md").read_text("utf-8") == (
        "[a](source/spec/law.py.md) [b](check.md#x)\n```\n[c](../spec/law.py)\n```\n"
    )
    assert "class Law:" in (tmp_path / "source/spec/law.py.md").read_text("utf-8")
    with pytest.raises(UsageError, match="outside of the checkout"):
        writer.write_page("x.md", "[a](../../etc)" if (ROOT / "../../etc").exists() else "[a](..)")


def test_files_beside_the_checkout_do_not_matter(tmp_path: Path) -> None:
    """A generated page's link to a page above it stays, also if a file beside the checkout fits."""
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (tmp_path / "laws.json").write_text("{}", "utf-8")
    SourcePages(checkout, tmp_path / "out").write_page("", "[a](../laws.json)", "laws/index.md")
    assert (tmp_path / "out/laws/index.md").read_text("utf-8") == "[a](../laws.json)"


def test_links_that_show_a_path_show_the_title_of_the_page(tmp_path: Path) -> None:
    """A link whose words are a page's path has its title; other words stay."""
    writer = SourcePages(ROOT, tmp_path)
    text = (
        "[`docs/show.md`](docs/show.md) [check.md](docs/check.md#in-ci) [limits](docs/limits.md) "
        "[check.md](docs/show.md) [`spec/law.py`](spec/law.py)"
    )
    writer.write_page("README.md", text)
    assert (tmp_path / "index.md").read_text("utf-8") == (
        "[*kvcanon show*](show.md) [*kvcanon check*](check.md#in-ci) "
        "[limits](limits.md) [check.md](show.md) [`spec/law.py`](source/spec/law.py.md)"
    )


def test_symptoms_page_is_written_from_the_table() -> None:
    """The page has today's table, with each law in its own first sentence."""
    assert (ROOT / PAGE).read_text("utf-8") == symptoms_page()
    assert {law_id for each in symptoms() for law_id in each.laws} <= LAWS.keys()
    assert len({each.seen for each in symptoms()}) == len(symptoms())


@pytest.mark.parametrize("arguments", [[], ["--help"], ["--figure"], ["--issue"], ["site", "more"]])
def test_wrong_arguments_write_nothing(
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A mistyped option is answered with the usage, and is no folder that the site goes to."""
    monkeypatch.chdir(tmp_path)
    assert site_main(arguments) == 2
    assert capsys.readouterr().err.startswith("usage: ")
    assert not list(tmp_path.iterdir())
