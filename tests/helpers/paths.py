"""Folders of this checkout that tests read."""

from pathlib import Path

HELPERS = Path(__file__).resolve().parent
"""Where `faulty:Leaky` and other adapters of the tests are found by name."""
TESTS = HELPERS.parent
ROOT = TESTS.parent
DOCS = ROOT / "docs"
