"""Badges of the README: facts that are counted when they are drawn, so that they are true."""

from __future__ import annotations

import tomllib
from pathlib import Path

from kvcanon.conformance.report.markup import tag
from kvcanon.lab.site.evidence import read_evidence
from kvcanon.lab.site.faults import read_faults
from kvcanon.spec.law import LAWS

CHAR = 6.6
COLOURS = {"ink": "#ffffff", "name": "#3d4653", "fact": "#1f5fbf"}


def badges(checkout: Path) -> dict[str, str]:
    """Every badge as the text of its file, by name."""
    project = tomllib.loads((checkout / "pyproject.toml").read_text("utf-8"))["project"]
    hunted = read_evidence(checkout).hunted.values()
    found = sum(1 for each in hunted if "survived" not in (each.by_states, each.vector))
    _, faults = read_faults(checkout)
    facts = {
        "laws": ("laws", str(len(LAWS))),
        "faults": ("planted faults found", f"{found} of {len(hunted)}"),
        "findings": ("faults found in engines", str(len({each.page for each in faults}))),
        "python": ("Python", project["requires-python"].replace(">=", "≥ ")),
        "license": ("license", project["license"]),
    }
    return {f"badge_{name}": f"{_badge(*fact)}\n" for name, fact in facts.items()}


def _badge(name: str, fact: str) -> str:
    left, right = (len(words) * CHAR + 12 for words in (name, fact))
    return tag(
        "svg",
        tag("title", f"{name}: {fact}"),
        tag("rect", width=f"{left:.0f}", height="20", fill=COLOURS["name"]),
        tag("rect", x=f"{left:.0f}", width=f"{right:.0f}", height="20", fill=COLOURS["fact"]),
        tag("text", name, x=f"{left / 2:.0f}", y="14", text_anchor="middle"),
        tag("text", fact, x=f"{left + right / 2:.0f}", y="14", text_anchor="middle"),
        xmlns="http://www.w3.org/2000/svg",
        role="img",
        width=f"{left + right:.0f}",
        height="20",
        fill=COLOURS["ink"],
        font_family="ui-sans-serif, system-ui, Verdana, sans-serif",
        font_size="11",
    )
