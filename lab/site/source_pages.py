"""Pages of the checkout's own files: those that pages link to, so that the site needs no other one.

A page of docs/ keeps its place. What it links to outside of docs/, and programs, become pages
below `source/`, and the links lead there. A link whose words are the path of a page gets its title.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from kvcanon.conformance.errors import UsageError
from kvcanon.spec.law import SITE

_LINK = re.compile(
    r"(?P<words>\[`?(?:\.\./|docs/)*[\w-]+\.md`?)?(?P<open>\]\()(?P<target>[^)\s]+)\)"
)
"""A link; its words only where they are the path of a page."""
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LANGUAGES = {
    ".py": "python", ".pyi": "python", ".hpp": "cpp", ".cpp": "cpp", ".json": "json",
    ".toml": "toml", ".yml": "yaml", ".mjs": "javascript", ".css": "css", ".cu": "cpp",
}  # fmt: skip
PICTURES = {".svg", ".png"}
WHOLE_PAGES = {"play/"}
"""Folders of the site whose page is HTML, and no Markdown."""
TOP_PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Pages at the top of the checkout, and what they are called on the site."""


def source_link(file: str, up: str, line: int | None = None) -> str:
    """A link to the page of a file of the checkout, from a page `up` below the top."""
    anchor = "" if line is None else f"#__codelineno-0-{line}"
    return f"{up}/source/{file}.md{anchor}"


class SourcePages:
    """Writes pages whose links stay on the site, and the pages of the files that they lead to."""

    def __init__(self, checkout: Path, out: Path) -> None:
        self._checkout, self._out = checkout, out
        self._wanted: set[str] = set()
        self._written: set[str] = set()

    def write_page(self, page: str, text: str, place: str | None = None) -> None:
        """Write a page, `docs/check.md` or generated, with links as from `page` in the checkout.

        Without a `page` the links are those of the site, whatever lies beside the checkout.
        """
        target = place if place is not None else place_of(page)
        self._write(target, self._relinked(page, target, text))

    def want(self, file: str) -> str:
        """Note that a file gets a page; return its place."""
        self._wanted.add(file)
        return place_of(file)

    def write_wanted(self) -> None:
        """Write the pages of all files that are linked, and of those that these link to."""
        while self._wanted - self._written:
            for file in sorted(self._wanted - self._written):
                self._written.add(file)
                path = self._checkout / file
                if path.is_dir():
                    self._write(place_of(file), self._listing(file))
                elif path.suffix in PICTURES:
                    self._copy(file)
                elif path.suffix == ".md":
                    self.write_page(file, path.read_text("utf-8"))
                else:
                    self._write(place_of(file), _code_page(file, path.read_text("utf-8")))

    def _relinked(self, page: str, place: str, text: str) -> str:
        """The text of a page with its links as they are on the site."""

        def relink(match: re.Match[str]) -> str:
            target, mark, anchor = match["target"].partition("#")
            if target.startswith(SITE):
                there = posixpath.relpath(_own_page(target), posixpath.dirname(place) or ".")
                return f"{match['words'] or ''}{match['open']}{there}{mark}{anchor})"
            if "://" in target or target.startswith("mailto:") or not target or not page:
                return match[0]  # A page that is of no file links to places of the site already.
            file = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
            if not (self._checkout / file).exists():
                return match[0]  # A generated page, or a broken link, which mkdocs reports.
            there = posixpath.relpath(self._place(file), posixpath.dirname(place) or ".")
            words = match["words"] or ""
            if posixpath.basename(words.strip("[`")) == posixpath.basename(file):
                words = f"[*{self._title(file)}*"
            return f"{words}{match['open']}{there}{mark}{anchor})"

        parts, at = [], 0
        for fence in _FENCE.finditer(text):
            parts += [_LINK.sub(relink, text[at : fence.start()]), fence[0]]
            at = fence.end()
        return "".join([*parts, _LINK.sub(relink, text[at:])])

    def _title(self, file: str) -> str:
        """The title of a page, up to its colon: on the site its path says nothing."""
        text = (self._checkout / file).read_text("utf-8")
        title = re.search(r"^# (.+)$", text, re.MULTILINE)
        return title[1].partition(":")[0].replace("`", "") if title else file

    def _place(self, file: str) -> str:
        if not file.startswith("docs/") or not file.endswith(".md"):
            self._wanted.add(file)
        return place_of(file)

    def _listing(self, folder: str) -> str:
        names = sorted(
            f"{each.name}/" if each.is_dir() else each.name
            for each in (self._checkout / folder).iterdir()
            if not each.name.startswith(("__pycache__", "."))
        )
        lines = "\n".join(f"- `{name}`" for name in names)
        return f"{_HIDDEN}# `{folder}/`\n\nThe files of this folder of the checkout.\n\n{lines}\n"

    def _write(self, place: str, text: str) -> None:
        path = self._out / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")

    def _copy(self, file: str) -> None:
        path = self._out / place_of(file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((self._checkout / file).read_bytes())


def place_of(file: str) -> str:
    """Where a file of the checkout is on the site. Raises: UsageError: it is outside."""
    if file.startswith(".."):
        raise UsageError(f"a page links to {file}, which is outside of the checkout")
    path = Path(file)
    if file in TOP_PAGES:
        return TOP_PAGES[file]
    if file == "README.md":
        return "index.md"
    if file.startswith("docs/") and path.suffix in {".md", *PICTURES}:
        return file.removeprefix("docs/")
    # mkdocs leaves folders out whose name begins with a dot.
    shown = file.removeprefix(".")
    return f"source/{shown}" if path.suffix == ".md" else f"source/{shown}.md"


def _own_page(address: str) -> str:
    """The page of the site at one of its own addresses, so that it is found without a network."""
    path = address.removeprefix(SITE)
    is_folder = path.endswith("/") or not path
    if path in WHOLE_PAGES:
        return f"{path}index.html"
    return f"{path}index.md" if is_folder else f"{path.removesuffix('.html')}.md"


_HIDDEN = "---\nsearch:\n  exclude: true\nhide:\n  - toc\n---\n"


def _code_page(file: str, text: str) -> str:
    """The page of a file: its text, with numbered lines that can be linked."""
    fence = "`" * (2 + max([1, *(len(each) for each in re.findall(r"`+", text))]))
    language = LANGUAGES.get(Path(file).suffix, "text")
    numbered = f'{fence}{language} linenums="1"'
    return f"{_HIDDEN}# `{file}`\n\n{numbered}\n{text.rstrip()}\n{fence}\n"
