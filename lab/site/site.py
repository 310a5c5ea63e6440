"""Writes all pages of the site into a folder, for mkdocs."""

from __future__ import annotations

import inspect
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.laws.laws_json import SCHEMA, laws_json, source_of, witnesses_of
from kvcanon.lab.mutants.kill_matrix import find_checkout, find_mutants
from kvcanon.lab.mutants.planted import STORE_MUTANTS
from kvcanon.lab.site.chapters.chapters import ABOUT, chapters, navigation
from kvcanon.lab.site.chapters.places import FOLDER, spec_names
from kvcanon.lab.site.chapters.print_edition import print_edition
from kvcanon.lab.site.evidence import read_evidence
from kvcanon.lab.site.faults import FILE, read_faults
from kvcanon.lab.site.figures import picture_styles
from kvcanon.lab.site.freshness import SOURCES, sources_digest
from kvcanon.lab.site.glossary_links import terms, with_anchors
from kvcanon.lab.site.indexes import all_indexes, areas, sentence_of
from kvcanon.lab.site.issue import with_script
from kvcanon.lab.site.law_page import Book, law_page
from kvcanon.lab.site.playground.bundle import write_playground
from kvcanon.lab.site.source_pages import SourcePages
from kvcanon.lab.site.steps import Pictures
from kvcanon.lab.site.witness import play_witness
from kvcanon.spec.law import LAWS, SITE

STYLES = Path(__file__).with_name("book.css")
SCRIPTS = ("iframe-worker-shim.js", "names.js")
"""What the theme lacks: search in a page opened as a file, and names for screen readers."""

BOOSTS = {
    "docs/symptoms.md": 4.0,
    "docs/adapters.md": 2.5,
    "docs/run-it-on-your-cache.md": 2.0,
    "docs/ten-minutes.md": 2.0,
    "docs/glossary.md": 3.0,
    "docs/prove.md": 0.3,
    "docs/mutants.md": 0.3,
    "docs/decisions.md": 0.5,
    "docs/engine-api.md": 0.5,
    "docs/explore.md": 0.5,
    "CHANGELOG.md": 0.3,
}
"""How much more, or less, a page counts in the search: what a newcomer looks for comes first."""

GLOSSARY = "docs/glossary.md"

_PICTURE = re.compile(r"^!\[(?P<alt>[^\]]*)\]\((?P<file>[\w./-]+\.svg)\)$", re.MULTILINE)


def write_site(out: Path, start: Path) -> None:
    """Write the pages into `out/pages`, and what the hook of mkdocs needs beside it.

    Raises: UsageError: there is no checkout, or a page cannot be made.
    """
    checkout = find_checkout(start.resolve())
    sources = sources_digest(checkout)
    book, pictures = read_book(checkout), Pictures()
    pages = out / "pages"
    if out.exists():
        shutil.rmtree(out)
    pages.mkdir(parents=True)
    writer = SourcePages(checkout, pages)
    for path in _pages(checkout):
        page = str(path.relative_to(checkout))
        boost = f"---\nsearch:\n  boost: {BOOSTS[page]}\n---\n" if page in BOOSTS else ""
        text = boost + _with_drawn_pictures(path, pictures)
        writer.write_page(page, with_anchors(text) if page == GLOSSARY else text)
    write_document(checkout, book, pictures, pages)
    write_playground(checkout, pages / "play")
    for module in book.names.modules.values():
        writer.want(module.file)
    for law in LAWS.values():
        page = f"laws/{law.law_id}/index.md"
        writer.write_page(page, law_page(law, book, pictures), page)
        writer.want(source_of(law)[0])
    for mutant in book.mutants:
        file = inspect.getsourcefile(inspect.unwrap(mutant.plant))
        writer.want(str(Path(file or "").resolve().relative_to(checkout)))
    for name, text in all_indexes(book).items():
        writer.write_page("", text, f"laws/{name}")
    writer.want(str(FILE))
    writer.write_wanted()
    (pages / "laws.json").write_text(f"{json.dumps(laws_json(), indent=1)}\n", "utf-8")
    shutil.copy(SCHEMA, pages / "laws.schema.json")
    (pages / "llms.txt").write_text(llms_txt(checkout), "utf-8")
    (pages / "assets").mkdir()
    shutil.copy(STYLES, pages / "assets" / STYLES.name)
    for name in SCRIPTS:
        shutil.copy(STYLES.with_name(name), pages / "assets" / name)
    (out / SOURCES).write_text(sources, "utf-8")
    (out / "pictures.json").write_text(json.dumps(pictures.by_name), "utf-8")
    nav = {"LAWS": {"The laws": _nav_of_laws()}, "SPEC": {"The specification": navigation()}}
    (out / "nav.json").write_text(json.dumps(nav), "utf-8")
    glossary = (checkout / GLOSSARY).read_text("utf-8")
    (out / "terms.json").write_text(json.dumps(terms(glossary)), "utf-8")


def write_document(checkout: Path, book: Book, pictures: Pictures, pages: Path) -> None:
    """Write the chapters of the specification, and its edition for print."""
    folder = pages / FOLDER
    folder.mkdir()
    written = chapters(checkout, book.names, pictures)
    for name, text in written.items():
        (folder / f"{name}.md").write_text(f"---\nsearch:\n  boost: 1.5\n---\n{text}", "utf-8")
    printed = print_edition(written, pictures.by_name, picture_styles())
    (folder / "print.html").write_text(printed, "utf-8")


def read_book(checkout: Path) -> Book:
    """Read and play all that pages of laws are made from. Raises: UsageError."""
    mutants = (*find_mutants(checkout), *STORE_MUTANTS)
    engines, faults = read_faults(checkout)
    vectors = {law.law_id: witnesses_of(law) for law in LAWS.values()}
    bare = [law_id for law_id, found in vectors.items() if not found]
    if bare:
        raise UsageError(f"{', '.join(bare)} has no vector; `make vectors` makes one")
    witnesses = {
        law_id: [play_witness(vector, mutants) for vector in found]
        for law_id, found in vectors.items()
    }
    names = spec_names(checkout)
    return Book(checkout, read_evidence(checkout), mutants, witnesses, engines, faults, names)


def llms_txt(checkout: Path) -> str:
    """`llms.txt`: what this is, where its pages are, and every law in a sentence."""
    readme = (checkout / "README.md").read_text("utf-8")
    about = next(part for part in readme.split("\n\n") if part.startswith("kvcanon "))
    return "\n".join(_llms_lines(checkout, " ".join(about.split()))) + "\n"


def _llms_lines(checkout: Path, about: str) -> Iterator[str]:
    yield from ("# kvcanon", "", f"> {about}", "")
    yield (
        "A law is cited by its id, as EVENT-10. Its page has its reason, where it was seen broken, "
        f"its code and its witnesses. All laws as JSON: {SITE}laws.json (schema: "
        f"{SITE}laws.schema.json)."
    )
    yield from ("", "## Specification", "")
    yield from (
        f"- [{title}]({SITE}{FOLDER}/{name}.html): {has}" for name, (title, has) in ABOUT.items()
    )
    yield from ("", "## Guides", "")
    for path in sorted((checkout / "docs").glob("*.md")):
        title = path.read_text("utf-8").partition("\n")[0].removeprefix("# ").replace("`", "")
        yield f"- [{title}]({SITE}{path.stem}.html)"
    for title, laws in areas().items():
        yield from ("", f"## {title}", "")
        for law in laws:
            sentence = sentence_of(law).replace("&lt;", "<").replace("\\|", "|")
            yield f"- [{law.law_id} {law.name}]({law.address}): {sentence}"


def _pages(checkout: Path) -> list[Path]:
    docs = checkout / "docs"
    tops = [checkout / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    return [*tops, *sorted(docs.glob("*.md")), *sorted(docs.glob("findings/*/*.md"))]


def _with_drawn_pictures(path: Path, pictures: Pictures) -> str:
    """A page with its script, and with drawn pictures in it, which so follow its colours."""

    def drawn(match: re.Match[str]) -> str:
        file = path.parent / match["file"]
        text = file.read_text("utf-8")
        if 'class="kv"' not in text:
            return match[0]
        text = re.sub(r"<style>.*?</style>", "", text, count=1, flags=re.DOTALL)
        return f'<figure class="kv-figure">{pictures.add(file.stem, text)}</figure>'

    return _PICTURE.sub(drawn, with_script(path))


def _nav_of_laws() -> list[object]:
    nav: list[object] = [
        {"All laws": "laws/index.md"},
        {"By operation": "laws/by-operation.md"},
        {"By historical bug": "laws/by-bug.md"},
        {"By engine": "laws/by-engine.md"},
        {"By what goes wrong": "laws/by-fault.md"},
    ]
    for title, laws in areas().items():
        nav.append({title: [{law.law_id: f"laws/{law.law_id}/index.md"} for law in laws]})
    return nav
