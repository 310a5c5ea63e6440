"""What an engine is asked: chats, branches, salts, aborts and resets, drawn from a seed."""

from __future__ import annotations

from random import Random

from attrs import field, frozen

from kvcanon.lab.vllm_engine.tiny_models import VOCABULARY


@frozen
class EngineSettings:
    """An engine, and what is planted in its connector."""

    model: str
    connector: bool = True
    policy: str = "write_back"
    at_a_time: int = 1
    ranks: int = 1
    blocks: int = 18
    host_blocks: int = 48
    failing: bool = False
    """Whether every third load fails."""
    beside: bool = False
    """Whether a second tier stands beside it in `MultiConnector`, under write_through."""
    overlapping: bool = False
    """Whether vLLM plans a step while another runs (`--async-scheduling`)."""
    fault: str = ""
    seed: int = 0
    """Of the model's weights, and of what is asked unless `script` says otherwise."""
    script: int | None = None
    salts: str = "salt"
    """What all salts begin with."""
    folder: str = ""
    """Where the model and a disk are kept for the next engine; without it neither is kept."""
    disk_mib: float = 0.0
    """Room on the disk; 0 for none."""
    killed: bool = False
    """Whether the engine's process ends without a word when it has answered."""

    @property
    def script_seed(self) -> int:
        """The seed of what is asked."""
        return self.seed if self.script is None else self.script


@frozen
class Ask:
    """A prompt: the chat that it goes on with, and what is added."""

    chat: int
    added: tuple[int, ...]
    beginning: int | None = None
    """It is a branch: so many tokens of the chat, and what is added; the chat does not change."""
    salt: str | None = None
    aborted: bool = False


@frozen
class Round:
    """Prompts that may be served together; none goes on with another of them."""

    asks: tuple[Ask, ...]
    reset: bool = field(default=False)
    """Whether the caches are reset before."""


def draw_rounds(seed: int, chats: int = 4, rounds: int = 6, *, salts: str = "salt") -> list[Round]:
    """Draw the rounds of a run, with salts that begin with a word."""
    draw = Random(f"rounds {seed}")
    drawn = []
    for number in range(rounds):
        asks = []
        for chat in range(chats):
            length = draw.randint(90, 130) if number == 0 else draw.randint(5, 40)
            asks.append(Ask(chat, _tokens(draw, length)))
        if number:
            chat = draw.randrange(chats)
            asks.append(Ask(chat, _tokens(draw, 9), beginning=draw.randint(64, 90)))
            asks.append(Ask(chat, _tokens(draw, 3), beginning=90, salt=f"{salts} {number}"))
            asks.append(Ask(draw.randrange(chats), _tokens(draw, 9), beginning=90, aborted=True))
        drawn.append(Round(tuple(asks), reset=number == rounds - 2))
    return drawn


def _tokens(draw: Random, count: int) -> tuple[int, ...]:
    return tuple(draw.randrange(VOCABULARY) for _ in range(count))
