"""What cannot be judged because of what a server is, or does not say."""

from __future__ import annotations

from attrs import evolve

from kvcanon.conformance.probe.talk import EngineFacts

NO_COUNTS = (
    "cached tokens: the server does not say them; start vLLM with --enable-prompt-tokens-details"
)
CACHE_OFF = (
    "nothing can be judged: prefix caching is off on this server{}; SGLang must run without "
    "--disable-radix-cache, vLLM with --enable-prefix-caching and --enable-prompt-tokens-details"
)


def not_judged(facts: EngineFacts) -> list[str]:
    """What cannot be judged because of what a server is."""
    found = []
    if facts.ranks > 1:
        found.append(
            f"cached tokens from below: {facts.ranks} ranks share the requests, each with a cache"
        )
    if facts.policy not in {None, "lru"}:
        found.append(f"the order of eviction: the policy is {facts.policy}")
    if facts.speculative:
        found.append("the last page of a hit: a draft model may need it to be computed again")
    if not facts.loras:
        found.append("LoRA adapters: the server lists none")
    if facts.has_host is None:
        found.append("the order of eviction: it is not known whether there is a host tier")
    return found


def with_options(
    facts: EngineFacts,
    *,
    window: int | None,
    pool_tokens: int | None,
    page_size: int | None,
    host: bool | None,
) -> EngineFacts:
    """What a server says, where the user says it otherwise."""
    changes: dict[str, object] = {
        "window": window,
        "pool_tokens": pool_tokens,
        "page_size": page_size,
        "has_host": host,
    }
    given = {name: value for name, value in changes.items() if value is not None}
    return evolve(facts, **given)  # type: ignore[arg-type]
