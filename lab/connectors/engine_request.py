"""A request as the engine keeps it, with the names that vLLM's `Request` has for a connector."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from hashlib import blake2b
from struct import pack

from attrs import Factory, define, field, frozen


class RequestState(Enum):
    """Where a request is."""

    WAITING = auto()
    WAITING_FOR_REMOTE_KVS = auto()
    """It has its blocks, into which a connector loads."""
    RUNNING = auto()
    PREEMPTED = auto()
    FINISHED = auto()


@frozen
class LoraAdapter:
    """A LoRA adapter."""

    lora_name: str
    lora_int_id: int
    lora_path: str = ""

    @property
    def name(self) -> str:
        """The same name, as vLLM has it twice."""
        return self.lora_name

    @property
    def adapter_id(self) -> int:
        """The same number."""
        return self.lora_int_id


@define(eq=False)
class StandInRequest:
    """A prompt, and what was generated after it."""

    request_id: str
    prompt_token_ids: tuple[int, ...]
    block_tokens: int
    max_tokens: int
    """How many tokens to generate."""
    cache_salt: str | None = None
    lora_request: LoraAdapter | None = None
    skip_reading_prefix_cache: bool = False
    mm_features: Sequence[object] = ()
    prompt_embeds: object | None = None
    kv_transfer_params: dict[str, object] | None = None
    session_id: str | None = None
    all_token_ids: list[int] = field(init=False)
    block_hashes: list[bytes] = Factory(list)
    """A hash of each whole block's tokens and of all before them, salt and adapter included."""
    num_computed_tokens: int = 0
    num_preemptions: int = 0
    num_output_placeholders: int = 0
    state: RequestState = RequestState.WAITING
    loads: int = field(default=0)
    """How many loads began for it."""
    process: int = 0
    """The process that it comes to: the next one hashes otherwise, and has other adapters."""

    def __attrs_post_init__(self) -> None:
        self.all_token_ids = list(self.prompt_token_ids)
        self._hash_whole_blocks()

    @property
    def num_tokens(self) -> int:
        """Tokens of the prompt and generated ones."""
        return len(self.all_token_ids)

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        return len(self.prompt_token_ids)

    @property
    def num_output_tokens(self) -> int:
        """Generated tokens."""
        return self.num_tokens - self.num_prompt_tokens

    @property
    def output_token_ids(self) -> Sequence[int]:
        """Generated tokens."""
        return self.all_token_ids[self.num_prompt_tokens :]

    @property
    def namespace(self) -> tuple[str | None, str | None]:
        """What separates it from requests with the same tokens."""
        adapter = self.lora_request
        return self.cache_salt, adapter.lora_name if adapter else None

    @property
    def stamped(self) -> tuple[object, ...]:
        """What its bytes depend on besides tokens and the model's weights."""
        return (*self.namespace, self.process if self.lora_request else 0)

    def is_finished(self) -> bool:
        """Whether it ended."""
        return self.state is RequestState.FINISHED

    def again(self) -> StandInRequest:
        """A new request with the same prompt, whose hashes are not computed again."""
        whole = self.num_prompt_tokens // self.block_tokens
        return StandInRequest(
            self.request_id,
            self.prompt_token_ids,
            self.block_tokens,
            self.max_tokens,
            self.cache_salt,
            self.lora_request,
            block_hashes=self.block_hashes[:whole],
            process=self.process,
        )

    def append_token(self, token: int) -> None:
        """Add a generated token."""
        self.all_token_ids.append(token)
        self._hash_whole_blocks()

    def _hash_whole_blocks(self) -> None:
        size = self.block_tokens
        while (len(self.block_hashes) + 1) * size <= len(self.all_token_ids):
            first = len(self.block_hashes) * size
            first_hash = repr((self.process, self.namespace)).encode()
            before = self.block_hashes[-1] if self.block_hashes else first_hash
            tokens = self.all_token_ids[first : first + size]
            hashed = blake2b(before + pack(f"{size}q", *tokens), digest_size=32)
            self.block_hashes.append(hashed.digest())
