"""Chapter 18. The wire: what holds of the frames in which events travel.

Events leave an engine as frames: a topic, a sequence number and a batch of events in MessagePack.
The laws of the events themselves are those of `laws.event`. These are of the frames alone: no cache
can break them, only a publisher or a network, so they are stated here and are not among `LAWS`.
"""

from __future__ import annotations

from attrs import frozen


@frozen
class WireLaw:
    """A rule about frames."""

    law_id: str
    statement: str
    why: str


WIRE_LAWS = {
    law.law_id: law
    for law in (
        WireLaw(
            "WIRE-1",
            "The batches of a publisher are numbered from 0, and arrive each once and in order.",
            "A batch that is missing, doubled or late leaves a router with pages that are gone, or "
            "without pages that are there, and nothing else tells it.",
        ),
        WireLaw(
            "WIRE-2",
            "A frame is a topic, eight bytes of sequence number, and one batch that can be read.",
            "A router drops the whole batch if it cannot read one event of it.",
        ),
        WireLaw(
            "WIRE-3",
            "A medium has a name that routers know.",
            "A router that does not know the medium ignores the page, or takes it to be on the "
            "device.",
        ),
        WireLaw(
            "WIRE-4",
            "An event names its group of layers where its publisher has several.",
            "One hash names a block of each group, so a router cannot know which of them left.",
        ),
        WireLaw(
            "WIRE-5",
            "An address has one publisher, and its batches name the rank that the address is for.",
            "A router keeps what it is told by address and rank: of two publishers it makes one "
            "cache that neither has.",
        ),
    )
}
"""The laws of frames, by id."""
