"""Finds out which dialect a server speaks."""

from __future__ import annotations

from enum import StrEnum

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.probe.chat_api import ChatApi
from kvcanon.conformance.probe.openai_api import OpenaiApi
from kvcanon.conformance.probe.sglang_api import SglangApi, server_info
from kvcanon.conformance.probe.talk import EngineApi, name_in
from kvcanon.conformance.probe.transport import EngineAddress, ServerProblem, ask_json

_SGLANG_SETTINGS = frozenset({"max_total_num_tokens", "disable_radix_cache", "internal_states"})


class ApiName(StrEnum):
    """The dialects, and the choice between them."""

    AUTO = "auto"
    SGLANG = "sglang"
    OPENAI = "openai"
    CHAT = "chat"


def api_of(address: EngineAddress, name: ApiName, run: str, model: str) -> EngineApi:
    """The dialect of a server; asks the server if none is named. Raises: UsageError, ServerProblem.

    An empty `model` is the first that the server lists.
    """
    if name is ApiName.SGLANG or (name is ApiName.AUTO and _is_sglang(address)):
        return SglangApi(address, run)
    completions = OpenaiApi(address, model or _first_model(address))
    if name is ApiName.CHAT or (name is ApiName.AUTO and not completions.is_there()):
        return ChatApi(completions)
    return completions


def _is_sglang(address: EngineAddress) -> bool:
    try:
        return bool(_SGLANG_SETTINGS & server_info(address).keys())
    except ServerProblem as problem:
        if problem.is_end or problem.status in {200, 401, 403} or 300 <= problem.status < 400:
            raise
        return False


def _first_model(address: EngineAddress) -> str:
    try:
        cards = ask_json(address, "GET", "/v1/models").get("data") or ()
        return next(name_in(card["id"]) for card in cards if not card.get("parent"))
    except ServerProblem as problem:
        if problem.status != 404:
            raise
        raise UsageError(
            f"{address.url} has neither SGLang's /server_info nor /v1/models; give the address of "
            "an engine, or its dialect by --api"
        ) from problem
    except (StopIteration, LookupError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{address.url}/v1/models lists no model") from error
