"""Drawn cases on kvcanon's core and on the mended one, in SGLang's environment.

It prints as JSON how many cases were played, which did not agree, and which mends are not needed:
those without which the case that `SHOWN_BY` names for them agrees as well, or the chats of the
configuration in `SHOWN_BY_CHATS`.
"""

from __future__ import annotations

import json

import sglang_cores
from kvcanon.conformance import JudgeConfig, draw_case, play
from kvcanon.conformance.protocol.cache_names import load_adapter
from kvcanon.lab.releases.mended import mended_core

CASES = 40
SHOWN_BY = {
    "split_in_place": 1,
    "cut_where_usable": 8,
    "announce_once": 1,
    "count_under_write_back": 144,
    "count_every_part": 35,
    "copy_path_at_its_end": 1,
    "copy_during_a_copy": 1,
    "give_up_whole_duplicates": 65,
    "evict_what_lacks": 1,
    "evict_windows_by_use": 19,
    "copy_own_windows": 1,
}
"""Seeds of cases that show a mend."""
SHOWN_BY_CHATS = {
    "copy_windows_of_backed_nodes": 7,
    "make_room_for_a_node": 7,
    "promise_whole_hits": 5,
}
"""Configurations of `sglang_cores.WINDOWED` that show a mend."""


def main() -> None:
    """Play the cases, and print what they came to."""
    ours, mended = load_adapter("sglang-kvcanon"), load_adapter("sglang-mended")

    def found(seed: int) -> list[str] | None:
        case = draw_case(seed=seed, offer=ours.offer)
        findings, tallies = play(case, [ours], JudgeConfig(black_box=True), mended)
        if any(tally.unoffered for tally in tallies.values()):
            return None
        return [f"seed {seed}: {each.cache}: {each.name}: {each.text}" for each in findings]

    def found_in_chats(number: int) -> object:
        config = sglang_cores.WINDOWED[number]
        return sglang_cores.compared(config, ["kvcanon", mended_core.NAME], number)["differences"]

    outcomes = [found(seed) for seed in range(CASES)]
    played = [each for each in outcomes if each is not None]
    mends, needless = mended_core.MENDS, []
    for shown_by, differs in ((SHOWN_BY, found), (SHOWN_BY_CHATS, found_in_chats)):
        for name, number in shown_by.items():
            mended_core.MENDS = tuple(mend for mend in mends if mend.__name__ != name)
            if len(mended_core.MENDS) == len(mends) or not differs(number):
                needless.append(name)
    report = {
        "played": len(played),
        "differences": [words for each in played for words in each],
        "needless": needless,
        "others": sorted(
            {mend.__name__ for mend in mends} - SHOWN_BY.keys() - SHOWN_BY_CHATS.keys()
        ),
    }
    print(json.dumps(report))  # noqa: T201 # The test reads it.


if __name__ == "__main__":
    main()
