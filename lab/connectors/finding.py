"""What is wrong with a connector."""

from __future__ import annotations

from enum import Enum


class BreachKind(Enum):
    """The kinds of faults; each is a sentence about the connector."""

    WRONG_BYTES = "a forward read bytes that are not those of its tokens"
    WRONG_ANSWER = "an answer is none that vLLM takes"
    UNANNOUNCED = "an answer counts blocks that no event has announced"
    NOT_SERVED = "blocks are announced, and the answer does not count them"
    WRONG_EVENT = "an event does not fit the tokens or what was announced before"
    UNKNOWN_REQUEST = "a completion names a request that waits for none"
    UNDECLARED_IDS = "block ids are reported as failed with several groups"
    REPEATED_LOADS = "one request loads again and again"
    HANG = "requests wait, and no step computes anything"
    BLOCKS_KEPT = "blocks of the device are held after all requests ended"
    HOST_KEPT = "what was pinned in the host is never let go"
    RAISED = "a call raised an exception"


class BrokenConnector(Exception):
    """A fault was found: the engine cannot go on."""

    def __init__(self, fault: BreachKind, words: str) -> None:
        super().__init__(f"{fault.value}: {words}")
        self.fault = fault
