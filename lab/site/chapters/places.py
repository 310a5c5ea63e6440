"""Where each name of spec/ is explained: in a chapter of the document, or in a line of its file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from attrs import frozen

from kvcanon.lab.site.chapters.definitions import (
    ROOT,
    Definition,
    Module,
    by_full_name,
    read_modules,
    resolve,
)
from kvcanon.spec.law import LAWS

FOLDER = "spec"
"""The folder of the chapters on the site."""

CHAPTERS: Mapping[str, tuple[str, ...]] = {
    "state": ("types", "config", "snapshot", "transfer", "tier"),
    "operations": ("operations", "cache", "errors", "refusals"),
    "definitions": (
        "oracle.prefix", "oracle.window", "oracle.eviction", "oracle.backup", "hashing",
        "oracle.pages", "oracle.grounds", "oracle.folding", "oracle.framing", "views",
        "difference", "replay", "shortest",
    ),
    "laws": ("law",),
    "wire": ("events", "wire"),
    "stores": ("stores",),
}  # fmt: skip
"""The modules of spec/ that each chapter explains; a package stands for all its modules. The laws
themselves have a page each."""


QUALIFIED = ("replay", "refusals", "stores")
"""Packages whose names are not unique in spec/."""


@frozen
class SpecNames:
    """All names of spec/, and where each is explained."""

    modules: Mapping[str, Module]
    definitions: Mapping[str, Definition]
    chapter_of: Mapping[str, str]
    """The chapter of each public definition that one explains, by its full name."""

    def modules_of(self, chapter: str) -> Iterator[Module]:
        """The modules that a chapter explains, in its order."""
        return modules_of(chapter, self.modules)

    def address(self, full_name: str, up: str) -> str | None:
        """Where a name is explained, from a page `up` below the top; None if spec/ lacks it."""
        full_name = resolve(full_name, self.modules)
        found = self.definitions.get(full_name)
        if found is None:
            module = self.modules.get(full_name)
            return None if module is None else f"{up}/source/{module.file}.html"
        owner = full_name if full_name in self.chapter_of else full_name.rpartition(".")[0]
        if owner in self.chapter_of and found.is_public:
            return f"{up}/{FOLDER}/{self.chapter_of[owner]}.html#{anchor_of(full_name)}"
        law_id = _LAW_OF.get(full_name)
        if law_id is not None:
            return f"{up}/laws/{law_id}/index.html"
        return f"{up}/source/{found.file}.html#__codelineno-0-{found.line}"


def modules_of(chapter: str, modules: Mapping[str, Module]) -> Iterator[Module]:
    """The modules that a chapter explains, in its order."""
    for name in CHAPTERS[chapter]:
        full = f"{ROOT}.{name}"
        yield from (
            module
            for module in modules.values()
            if module.name == full or module.name.startswith(f"{full}.")
        )


_LAW_OF = {f"{law.check.__module__}.{law.name}": law.law_id for law in LAWS.values()}


def anchor_of(full_name: str) -> str:
    """The anchor of a definition, or of a member of one, on the page of its chapter.

    It is the name alone: `Counts`, `Counts.full`, `usable_prefix`. In a package whose modules give
    the same names it is the whole name: `replay.board.Piece`.
    """
    parts = full_name.removeprefix(f"{ROOT}.").split(".")
    if parts[0] in QUALIFIED:
        return ".".join(parts)
    at = next((i for i, part in enumerate(parts) if part[:1].isupper()), len(parts) - 1)
    return ".".join(parts[at:])


def spec_names(checkout: Path) -> SpecNames:
    """Read all names of a checkout's spec/."""
    modules = read_modules(checkout)
    chapter_of = {
        definition.full_name: chapter
        for chapter in CHAPTERS
        for module in modules_of(chapter, modules)
        for definition in module.definitions
        if definition.is_public
    }
    return SpecNames(modules, by_full_name(modules), chapter_of)
