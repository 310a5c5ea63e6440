"""The table of past bugs: whether the judge finds each in the release before and after its fix.

A row is as expected if, with the same effort, the law is broken in the earlier release and holds in
the later one. A law that was not exercised proves nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum

from attrs import asdict, frozen

from kvcanon.conformance.errors import UsageError
from kvcanon.lab.releases.environment import Peer
from kvcanon.lab.releases.hunt import HERE, Hunt, Hunted, hunt_to_json
from kvcanon.lab.releases.past_bugs import PastBug
from kvcanon.lab.tied_program import run_tied

MODULE = "kvcanon.lab.releases.hunt"


class HuntOutcome(StrEnum):
    """The result of checking a law in a release."""

    FOUND = "found"
    NOT_FOUND = "not found"
    NOT_EXERCISED = "not exercised"
    MISSING = "no environment"


@frozen
class TableCell:
    """One release of a row."""

    row: PastBug
    release: str
    hunted: Hunted | None
    """None if the release has no environment."""

    @property
    def outcome(self) -> HuntOutcome:
        """The outcome of the hunt."""
        if self.hunted is None:
            return HuntOutcome.MISSING
        if self.hunted.found:
            return HuntOutcome.FOUND
        return HuntOutcome.NOT_FOUND if self.hunted.exercised else HuntOutcome.NOT_EXERCISED

    @property
    def expected(self) -> HuntOutcome:
        """The outcome that the history of the bug demands."""
        return HuntOutcome.FOUND if self.release == self.row.before else HuntOutcome.NOT_FOUND

    @property
    def is_as_expected(self) -> bool:
        """Whether the outcome is the expected one; True if there was no hunt."""
        return self.outcome in (self.expected, HuntOutcome.MISSING)


@frozen
class HuntEffort:
    """The effort of the hunt for one bug in one release."""

    seed: int
    cases: int
    seconds: float


def cell_of(row: PastBug, release: str, peers: Mapping[str, Peer], effort: HuntEffort) -> TableCell:
    """Search a release for the bug of a row. Raises: UsageError."""
    peer = peers.get(release)
    return TableCell(row, release, None if peer is None else _hunted(row, peer, effort))


def _hunted(row: PastBug, peer: Peer, effort: HuntEffort) -> Hunted:
    """Run the hunt of a row in an environment. Raises: UsageError."""
    wanted = Hunt(
        cache=row.cache,
        law_id=row.law_id,
        words=row.words,
        drawn=row.drawn,
        **asdict(effort),
    )
    command = [str(peer.python), "-m", MODULE, hunt_to_json(wanted)]
    done = run_tied(command, env=peer.variables)
    name = peer.release.name
    if done.returncode:
        last = next(iter(reversed(done.stderr.strip().splitlines())), "it said nothing")
        raise UsageError(f"{row.law_id} could not be asked in {peer.folder}: {last}")
    # Lines before the last are what the engine prints at import.
    said = json.loads(done.stdout.splitlines()[-1])
    if said["kvcanon"] != HERE:
        raise UsageError(
            f"{peer.folder} runs {said['kvcanon']}, which is not this kvcanon; "
            f"`kvcanon lab peers make {name}` links this one"
        )
    fields = said["hunted"] | {"calls": tuple(said["hunted"]["calls"])}
    return Hunted(**fields)
