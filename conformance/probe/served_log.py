"""Lines of a log of requests; `kvcanon.live.served` reads them, and says what is in them."""

from __future__ import annotations

from typing import Any

from kvcanon.conformance.probe.sharing import SentRequest
from kvcanon.conformance.probe.talk import ProbeRequest


def logged_request(real: ProbeRequest, sent: SentRequest) -> dict[str, Any] | None:
    """A request as a line of a log has it; None if it is not known what was cached for it.

    `real` is the request as it was sent. Events leave `extra_key` out, so it is left out here.
    """
    if sent.reply.cached is None or sent.reply.aborted or real.space.extra_key:
        return None
    made: dict[str, Any] = {
        "time": sent.began,
        "tokens": list(real.tokens),
        "cached_tokens": sent.reply.cached,
    }
    if sent.reply.tiers is not None:
        made["cached_tokens_details"] = dict(sent.reply.tiers)
    named = {"cache_salt": real.space.salt, "lora": real.space.lora}
    return made | {name: value for name, value in named.items() if value}
