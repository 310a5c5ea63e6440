"""Text from outside as it is printed: what a terminal or a workflow would obey is shown as text.

Names of models, answers of servers, media in events: whoever sends one could move the cursor, set
the title of a window, or write a line that GitHub takes for a command of the workflow.
"""

from __future__ import annotations

import re

_FIRST_COLONS = re.compile(r"(?<!\S)::")
_OLD_COMMAND = "##["
_UNPRINTABLE = re.compile(r"[^ -~]")


def printable(text: str) -> str:
    r"""The text in one line, with escapes in place of what does more than stand there.

    These are control characters, line ends, and letters without a shape, such as those that turn
    the direction of what follows: `\x1b`, `\n`, `\u202e`. Two colons at the beginning of a word and
    `##[` begin commands of a workflow, and are escaped as well.
    """
    shown = _UNPRINTABLE.sub(_escaped, text)
    return _FIRST_COLONS.sub(r"\\x3a:", shown).replace(_OLD_COMMAND, r"\x23#[")


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode()
