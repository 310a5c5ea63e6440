"""Rounds that never fill the pool: each is for something that a prefix cache can get wrong.

A round has namespaces of its own, so that its first prompt finds nothing. Later prompts may depend
on replies, since a chat goes on with what was said.
"""

from __future__ import annotations

from kvcanon.conformance.probe.prompt_sender import REPLY_TOKENS, UNKNOWN_PAGE, PromptSender
from kvcanon.conformance.probe.talk import (
    EngineFacts,
    ProbeRequest,
    PromptSpace,
    SentRequest,
    Tokens,
)


def play_repeats(play: PromptSender) -> None:
    """Prompts of several lengths, each twice in a row: the page size, and the end of a hit."""
    unit, space = play.unit, PromptSpace("repeats")
    lengths = [3 * unit, 4 * unit + 1, 5 * unit - 1, 6 * unit + play.between(2, unit - 1), 7 * unit]
    if play.page.known is None:
        lengths += [play.between(3 * unit, 8 * unit) for _ in range(5)]
    for number, length in enumerate(lengths):
        tokens = play.tokens(length)
        # One token is asked for, so that no window passes before the prompt comes again.
        play.ask(f"prompt {number} of {length} tokens", tokens, space, 1)
        play.ask(f"prompt {number} again", tokens, space, 1)


def play_chats(play: PromptSender) -> None:
    """Two chats with one system prompt, in turn: each prompt extends an earlier reply."""
    space, system = PromptSpace("chats"), play.tokens(4 * play.unit + play.between(0, play.unit))
    said = [system + play.tokens(play.between(3, play.unit)) for _ in range(2)]
    for turn in range(3):
        for chat in range(2):
            sent = play.ask(f"chat {chat} turn {turn}", said[chat], space, REPLY_TOKENS + 3 * turn)
            said[chat] = sent.kept + play.tokens(play.between(2, play.unit))


def play_forks(play: PromptSender) -> None:
    """Prompts that leave one path at pages and within pages, longest first: each cuts a node."""
    unit, space = play.unit, PromptSpace("forks")
    trunk = play.tokens(9 * unit + play.between(0, unit - 1))
    play.ask("trunk", trunk, space)
    places = [7 * unit, 5 * unit + play.between(1, unit - 1), 4 * unit, 3 * unit - 1, 2 * unit + 1]
    branches = []
    for at in places:
        tokens = trunk[:at] + play.tokens(unit + play.between(1, 2 * unit))
        branches.append((f"branch at {at}", tokens))
        play.ask(*branches[-1], space)
    for at in (6 * unit, 3 * unit):
        play.ask(f"the first {at} of the trunk", trunk[:at], space)
    play.ask("trunk again", trunk, space)
    for name, tokens in branches[::-1]:
        play.ask(f"{name} again", tokens, space)
    longer = trunk + play.tokens(unit)
    play.ask("trunk, longer", longer, space)


def play_mixed(play: PromptSender) -> None:
    """Pages of two prompts behind other pages than before: tokens alone do not make a page."""
    size = play.page.most or play.facts.page_size or UNKNOWN_PAGE
    step, space = -(-play.unit // size) * size, PromptSpace("mixed")
    one, other = (play.tokens(5 * step + play.between(1, step - 1)) for _ in range(2))
    play.ask("one", one, space)
    play.ask("other", other, space)
    first, second, rest = other[:step], other[step : 2 * step], other[2 * step :]
    play.ask("other behind one", one[: 2 * step] + rest, space)
    play.ask("other but for its first page", play.tokens(step) + second + rest, space)
    play.ask("other in another order", first + rest[:step] + second + rest[step:], space)
    play.ask("its first page four times", first * 4 + play.tokens(3), space)
    play.ask("other again", other, space)


def play_outgrow(play: PromptSender) -> None:
    """Prompts that outgrow a window and a chunk, then their halves and their continuations."""
    unit, space = play.unit, PromptSpace("outgrow")
    length = long_prompt_length(play.facts, unit)
    first = play.tokens(length)
    sent = play.ask(f"{length} tokens", first, space)
    play.ask("the same again", first, space)
    half = first[: length // 2 + 1]
    play.ask("its first half", half + play.tokens(3), space)
    play.ask("its first half, again", half + play.tokens(3), space)
    play.ask("it goes on", sent.kept + play.tokens(unit), space)


def play_spaces(play: PromptSender) -> None:
    """One prompt in many namespaces, twice each: none finds what another has left."""
    unit = play.unit
    tokens = play.tokens(5 * unit + play.between(1, unit - 1))
    spaces = [PromptSpace("salt a"), PromptSpace("salt b"), PromptSpace()]
    if play.facts.extra_keys:
        spaces += [PromptSpace("salt a", "key"), PromptSpace("salt a", "other key")]
    spaces += [PromptSpace("salt a", lora=lora) for lora in play.facts.loras[:2]]
    for time in ("once", "again"):
        for space in spaces:
            play.ask(f"{space.words}, {time}", tokens, space)
    longer = tokens + play.tokens(unit)
    for space in spaces[:2]:
        play.ask(f"{space.words}, longer", longer, space)


def play_aborts(play: PromptSender) -> None:
    """Clients that leave while their reply is generated; then the same prompts to the end."""
    unit, space = play.unit, PromptSpace("aborts")
    shared = play.tokens(3 * unit)
    prompts = [shared + play.tokens(unit + play.between(1, 2 * unit)) for _ in range(3)]
    for number, tokens in enumerate(prompts):
        play.send(ProbeRequest(f"aborted {number}", tokens, reply_to_abort(play), space, 2))
    for number, tokens in enumerate(prompts):
        play.ask(f"prompt {number}, not aborted", tokens, space)


def play_endings(play: PromptSender) -> None:
    """Replies that end with a token or a text, and prompts that go on from them."""
    size = play.page.most or play.facts.page_size or UNKNOWN_PAGE
    step = -(-play.unit // size) * size
    # One reply ends a page in its middle, the other wherever it ends.
    for number, length in enumerate((4 * step - 3, 4 * step + play.between(1, step - 1))):
        tokens, count = play.tokens(length), 2 * REPLY_TOKENS
        whole = play.ask(f"{number}, to its end", tokens, PromptSpace("endings"), count)
        last, part = _late_token(whole.reply.tokens), _late_text(whole.reply.text)
        if last is not None and not play.facts.chats:
            space = PromptSpace("endings by a token")
            name = f"{number}, ends with a token"
            _go_on(play, play.send(ProbeRequest(name, tokens, count, space, stop_token=last)))
        if part:
            space = PromptSpace("endings by a text")
            name = f"{number}, ends with a text"
            _go_on(play, play.send(ProbeRequest(name, tokens, count, space, stop_text=part)))


def _go_on(play: PromptSender, ended: SentRequest) -> None:
    """Go on from a reply that ended early."""
    tokens = ended.kept + play.tokens(play.unit)
    play.ask(f"{ended.request.name}, and goes on", tokens, ended.request.space)


def _late_token(reply: Tokens) -> int | None:
    """The last token of a reply that is nowhere before; None if there is none late enough."""
    places = range(len(reply) - 2, 2, -1)
    return next((reply[at] for at in places if reply[at] not in reply[:at]), None)


def _late_text(reply: str) -> str:
    """A part of a reply that is nowhere before, beyond its middle; empty if there is none."""
    places = range(len(reply) // 2, len(reply) - 3)
    return next((reply[at : at + 3] for at in places if reply.index(reply[at : at + 3]) == at), "")


def play_changed(play: PromptSender) -> None:
    """Prompts before and after weights or an adapter are replaced: nothing old may be found."""
    unit = play.unit
    tokens, count = play.tokens(5 * unit + play.between(1, unit - 1)), 2 * REPLY_TOKENS
    spaces = [PromptSpace("changed"), *(PromptSpace("changed", lora=x) for x in play.facts.loras)]
    for space in spaces:
        name = f"{space.words}, before the change"
        play.send(ProbeRequest(name, tokens, count, space, is_before_change=True))
    play.change()
    longer = tokens + play.tokens(unit)
    for space in spaces:
        play.ask(f"{space.words}, after the change", tokens, space, count)
        play.ask(f"{space.words}, longer, after the change", longer, space)


def long_prompt_length(facts: EngineFacts, unit: int) -> int:
    """The length of a long prompt: a third of the smallest pool, and at most 2048 tokens."""
    limits = [2048, facts.context_tokens, facts.pool_tokens, facts.window_pool_tokens]
    shares = [limit // 3 for limit in limits[1:] if limit]
    return max(4 * unit, min([2048, *shares])) + 1


def reply_to_abort(play: PromptSender) -> int:
    """A reply so long that its client leaves first."""
    context = play.facts.context_tokens or 1 << 12
    return max(REPLY_TOKENS, min(96, context // 4, (play.facts.pool_tokens or 1 << 12) // 4))
