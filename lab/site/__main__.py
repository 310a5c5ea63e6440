"""`python -m kvcanon.lab.site FOLDER`: write the pages of the site for mkdocs.

With `--findings`, `--freedoms`, `--methods`, `--stores` or `--rooms` it writes tables of a page of
docs/ anew; with `--figures` the pictures of docs/figures; with `--symptoms` docs/symptoms.md; with
`--history` what this version adds to the history of the laws; with `--anchors` the addresses that
are new in the specification; with `--measured` the tables of lab/bench/measured in all pages.
`--measured NAME FILE...` first takes the table of a name from what its command wrote with `--json`.
`--issue PAGE` prints the page of a finding with its script, for an issue tracker.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.laws.history import FILE, read_history
from kvcanon.lab.mutants.kill_matrix import find_checkout
from kvcanon.lab.site.chapters.chapters import ANCHORS, anchors_of, anchors_text, chapters
from kvcanon.lab.site.chapters.places import spec_names
from kvcanon.lab.site.figures import write_figures
from kvcanon.lab.site.issue import with_script
from kvcanon.lab.site.law_history import history_text, moved_on
from kvcanon.lab.site.measured import write_figures_of_pages
from kvcanon.lab.site.site import write_site
from kvcanon.lab.site.steps import Pictures
from kvcanon.lab.site.symptoms import PAGE, symptoms_page
from kvcanon.lab.site.tables import TABLES, page_with_tables
from kvcanon.lab.site.take_figures import take_figures
from kvcanon.spec.law import LAWS

ISSUE, MEASURED = "--issue", "--measured"
WRITES = ("--figures", "--symptoms", "--history", "--anchors", MEASURED, *TABLES)
OTHERS = ", ".join((f"{ISSUE} PAGE", f"{MEASURED} NAME FILE...", *WRITES))
USAGE = f"usage: python -m kvcanon.lab.site FOLDER, or {OTHERS}"


def main(arguments: list[str]) -> int:
    """Do as asked, and return the exit code."""
    try:
        match arguments:
            case [option, page] if option == ISSUE:
                sys.stdout.write(with_script(Path(page)))
            case [option, name, *files] if option == MEASURED and files:
                checkout = find_checkout(Path.cwd())
                take_figures(name, [Path(file) for file in files], checkout)
                write_figures_of_pages(checkout)
            case [what] if _is_known(what):
                _write(what, find_checkout(Path.cwd()))
            case _:
                sys.stderr.write(f"{USAGE}\n")
                return 2
    except (UsageError, OSError) as wrong:
        sys.stderr.write(f"kvcanon.lab.site: {wrong}\n")
        return 2
    return 0


def _write(what: str, checkout: Path) -> None:
    """Write what an option names, or the pages into a folder. Raises: UsageError, OSError."""
    if what in TABLES:
        page, text = page_with_tables(what, checkout)
        page.write_text(text, "utf-8")
    elif what == "--figures":
        write_figures(checkout)
    elif what == "--symptoms":
        (checkout / PAGE).write_text(symptoms_page(), "utf-8")
    elif what == MEASURED:
        write_figures_of_pages(checkout)
    elif what == "--history":
        FILE.write_text(history_text(moved_on(read_history(), LAWS)), "utf-8")
    elif what == "--anchors":
        pages = chapters(checkout, spec_names(checkout), Pictures())
        text = anchors_text(ANCHORS.read_text("utf-8"), anchors_of(pages))
        ANCHORS.write_text(text, "utf-8")
    else:
        write_site(Path(what), checkout)


def _is_known(argument: str) -> bool:
    """Whether an argument is a folder or an option: a folder is not made of a mistyped option."""
    return not argument.startswith("-") or argument in WRITES


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
