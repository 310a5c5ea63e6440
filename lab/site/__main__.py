"""`python -m kvcanon.lab.site FOLDER`: write the pages of the site for mkdocs.

With `--findings`, `--freedoms`, `--methods`, `--stores` or `--rooms` it writes tables of a page of
docs/ anew; with `--figures` the pictures of docs/figures; with `--symptoms` docs/symptoms.md; with
`--history` what this version adds to the history of the laws; with `--anchors` the addresses that
are new in the specification; with `--measured` the tables of lab/bench/measured in all pages.
`--gpu FILE` keeps what `make gpu` wrote, and writes its table. `--issue PAGE` prints the page of a
finding with its script, for an issue tracker.
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
from kvcanon.lab.site.gpu_figures import keep_transfers
from kvcanon.lab.site.issue import with_script
from kvcanon.lab.site.law_history import history_text, moved_on
from kvcanon.lab.site.measured import write_figures_of_pages
from kvcanon.lab.site.site import write_site
from kvcanon.lab.site.steps import Pictures
from kvcanon.lab.site.symptoms import PAGE, symptoms_page
from kvcanon.lab.site.tables import TABLES, page_with_tables
from kvcanon.spec.law import LAWS

WRITES = ("--figures", "--symptoms", "--history", "--anchors", "--measured", *TABLES)
TAKES = ("--issue", "--gpu")
"""What is given a file."""
OTHERS = ", ".join(("--issue PAGE", "--gpu FILE", *WRITES))
USAGE = f"usage: python -m kvcanon.lab.site FOLDER, or {OTHERS}"


def main(arguments: list[str]) -> int:
    """Do as asked, and return the exit code."""
    takes_file = len(arguments) == 2 and arguments[0] in TAKES
    if not takes_file and not (len(arguments) == 1 and _is_known(arguments[0])):
        sys.stderr.write(f"{USAGE}\n")
        return 2
    try:
        checkout = find_checkout(Path.cwd())
        if takes_file:
            _take(arguments[0], Path(arguments[1]), checkout)
        else:
            _write(arguments[0], checkout)
    except (UsageError, OSError) as wrong:
        sys.stderr.write(f"kvcanon.lab.site: {wrong}\n")
        return 2
    return 0


def _take(option: str, file: Path, checkout: Path) -> None:
    """Do what an option says with a file. Raises: UsageError, OSError."""
    if option == "--gpu":
        keep_transfers(file, checkout)
        write_figures_of_pages(checkout)
    else:
        sys.stdout.write(with_script(file))


def _write(what: str, checkout: Path) -> None:
    """Write what an option names, or the pages into a folder. Raises: UsageError, OSError."""
    if what in TABLES:
        page, text = page_with_tables(what, checkout)
        page.write_text(text, "utf-8")
    elif what == "--figures":
        write_figures(checkout)
    elif what == "--symptoms":
        (checkout / PAGE).write_text(symptoms_page(), "utf-8")
    elif what == "--measured":
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
