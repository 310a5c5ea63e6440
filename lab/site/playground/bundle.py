"""Makes the playground's page: one folder that needs no server, and no other file.

The page has the plain cache, the laws and the planted faults as the sources of this checkout, and
Python for the browser from Pyodide's package, which `make playground` brings. Its data are scripts,
as a page that is opened as a file may load scripts and fetch nothing.
"""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import tarfile
import zlib
from base64 import b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from kvcanon import __version__
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.report.html_page import STYLE
from kvcanon.conformance.report.markup import Markup, tag
from kvcanon.conformance.show.page import WEB, show_style
from kvcanon.conformance.vectors import FOLDER
from kvcanon.spec.law import SITE

PYODIDE = "0.29.0"
SHA256 = "52ea0e976b6e8373ef911f21cb3751ea50b03eb423b093fbfa21ffc27e842f01"
TARBALL = Path("build") / "pyodide" / f"pyodide-{PYODIDE}.tgz"
"""Where `make playground` puts Pyodide's package, in the checkout."""

SESSION = "kvcanon.lab.site.playground.session"
SCRIPTS = ("pyodide.asm.js", "pyodide.js")
DATA = ("pyodide.asm.wasm", "python_stdlib.zip")
LOCK = "pyodide-lock.json"
SOURCES = "sources.zip"
PAGE = "index.html"

INTRODUCTION = (
    "The plain cache of the canon runs in this page, with every law checked after each call. "
    "Choose a cache, make calls, plant a fault, and see the tree, the pools, the events, and the "
    "law that breaks. Each page of a prompt is a letter: A is token 0, B token 1. The address of "
    "this page has the whole case."
)
WITHOUT = (
    "This build of the site has no Python for the browser. `make playground` in a checkout of "
    "kvcanon builds it with; that takes npm, and five megabytes."
)
NO_SCRIPT = "This page plays a cache by a script, and scripts are switched off."

_HERE = Path(__file__).parent
_EARLIEST = (1980, 1, 1, 0, 0, 0)
_LIST = f"""
import json, sys
import {SESSION}
mine = {{"kvcanon", "attr", "attrs"}}
there = {{name: each.__file__ for name, each in sys.modules.items() if name.split(".")[0] in mine}}
print(json.dumps(there))
"""


def write_playground(checkout: Path, folder: Path) -> None:
    """Write the page and its data into a new folder; without Pyodide a page that says so.

    Raises: UsageError: the package is not the one that is expected.
    """
    folder.mkdir(parents=True)
    tarball = checkout / TARBALL
    if not tarball.exists():
        (folder / PAGE).write_text(_page(tag("p", WITHOUT)), "utf-8")
        return
    package = _package(tarball)
    for name in SCRIPTS:
        (folder / name).write_bytes(package[name])
    files = {name: package[name] for name in DATA} | {SOURCES: sources()}
    (folder / "data.js").write_text(_data(files), "ascii")
    (folder / "playground.js").write_text(_script(), "utf-8")
    lock = json.loads(package[LOCK])
    root = tag(
        "div",
        tag("p", "The page is being loaded."),
        tag("noscript", tag("p", NO_SCRIPT)),
        data_playground="",
        data_site=SITE,
        data_lock=json.dumps({**lock, "packages": {}}),
    )
    scripts = [tag("script", src=name) for name in ("data.js", *SCRIPTS, "playground.js")]
    (folder / PAGE).write_text(_page(root, *scripts), "utf-8")


def sources() -> bytes:
    """A zip file with all modules that a session imports, with attrs, and with the vectors."""
    buffer = io.BytesIO()
    with ZipFile(buffer, "w", ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in sorted(_sources()):
            archive.writestr(ZipInfo(name, _EARLIEST), content, ZIP_DEFLATED)
    return buffer.getvalue()


def _sources() -> Iterator[tuple[str, bytes]]:
    command = [sys.executable, "-c", _LIST]
    listed = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    there: Mapping[str, str] = json.loads(listed.stdout)
    for name, file in there.items():
        path, place = Path(file), name.replace(".", "/")
        yield (
            (f"{place}/{path.name}" if path.stem == "__init__" else f"{place}.py"),
            (path.read_bytes()),
        )
    for path in FOLDER.glob("*.json"):
        yield f"kvcanon/conformance/vectors/cases/{path.name}", path.read_bytes()
    about = f"Metadata-Version: 2.1\nName: kvcanon\nVersion: {__version__}\n"
    yield f"kvcanon-{__version__}.dist-info/METADATA", about.encode()


def _package(tarball: Path) -> dict[str, bytes]:
    """The files of Pyodide's package that the page needs. Raises: UsageError."""
    content = tarball.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != SHA256:
        raise UsageError(
            f"{tarball} is not Pyodide {PYODIDE}: its SHA-256 is {found}; remove it, and run "
            "`make playground` again"
        )
    package = {}
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
        for name in (*SCRIPTS, *DATA, LOCK):
            member = archive.extractfile(f"package/{name}")
            package[name] = b"" if member is None else member.read()
    return package


def _data(files: Mapping[str, bytes]) -> str:
    """A script that has files, each deflated, in base64."""
    packed = {name: b64encode(zlib.compress(each, 9)).decode() for name, each in files.items()}
    return f"window.kvcanonFiles = {json.dumps(packed)};\n"


def _script() -> str:
    """The scripts of `kvcanon show`, whose viewer draws each case, and those of the playground."""
    parts = [*sorted(WEB.glob("*.js")), _HERE / "playground.js"]
    code = "\n".join(path.read_text("utf-8") for path in parts)
    return f'(() => {{\n"use strict";\n{code}\n}})();\n'


def _page(*content: Markup) -> str:
    style = Markup((_HERE / "playground.css").read_text("utf-8"))
    head = tag(
        "head",
        Markup('<meta charset="utf-8">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        tag("title", "kvcanon: play with a cache"),
        tag("style", Markup(STYLE.read_text("utf-8")), show_style(), style),
    )
    body = tag(
        "body",
        tag(
            "header",
            tag("p", tag("a", "kvcanon", href="../index.html"), class_="kicker"),
            tag("h1", "Play with a cache"),
            tag("p", INTRODUCTION),
        ),
        tag("main", *content),
        tag(
            "footer",
            f"kvcanon {__version__}, and Python by Pyodide {PYODIDE} (MPL 2.0). Nothing is loaded "
            "from elsewhere, and nothing is sent.",
        ),
        class_="show-body",
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"
