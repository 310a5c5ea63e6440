"""Whether a site was built from the files as they are now, so that tests build none twice."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

SOURCES = "sources.txt"
"""Beside the pages: the digest of the files that they were made from."""
BUILT = "built.txt"
"""The same, written when a site of the pages is built and all its links are sound."""


def sources_digest(checkout: Path) -> str:
    """A digest of all files of a checkout, but not of what git ignores; empty without git."""
    command = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    try:
        listed = subprocess.run(  # noqa: S603  # Fixed words.
            command, cwd=checkout, capture_output=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
    digest = hashlib.sha256()
    for name in sorted({*listed.split(b"\0")} - {b""}):
        path = checkout / name.decode("utf-8", "surrogateescape")
        text = path.read_bytes() if path.is_file() else b""
        digest.update(b"%d %s\0%d\0" % (len(name), name, len(text)))
        digest.update(text)
    return digest.hexdigest()


def is_fresh(checkout: Path, book: Path) -> bool:
    """Whether the site of the pages in `book` is built, of the files as they are now."""
    built, now = book / BUILT, sources_digest(checkout)
    return bool(now) and built.is_file() and built.read_text("utf-8") == now
