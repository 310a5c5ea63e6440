"""A whole probe: what the server says, round after round, the truth without a cache, findings."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Self

from attrs import define, evolve, field, frozen

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.probe.coverage import Coverage, MissingPart, PlayedRound, ProbeVerdict
from kvcanon.conformance.probe.cut_answers import CUT, UNCUT, CutAnswers, unjudged_prompt
from kvcanon.conformance.probe.findings import ProbeFault, ProbeFinding
from kvcanon.conformance.probe.player import (
    REQUESTS,
    SECONDS,
    TOKENS,
    OutOfBudget,
    ProbePlayer,
    RequestSequence,
)
from kvcanon.conformance.probe.prompt_sender import ProbeRound, PromptSender, Unfit
from kvcanon.conformance.probe.reduction import LEAKS, NEEDS_REPLAY, Reducer, ShownFinding
from kvcanon.conformance.probe.request_judge import (
    USUAL_MARGIN,
    Closeness,
    JudgedAgainst,
    compare_replies,
    judge_sent,
    learned_page,
    page_fits,
)
from kvcanon.conformance.probe.rounds import ROUNDS
from kvcanon.conformance.probe.talk import (
    LEAST_CONTEXT_TOKENS,
    MOST_PAGE_TOKENS,
    EngineFacts,
    PageRange,
    ProbeReply,
    ProbeRequest,
    PromptKey,
    SentRequest,
)
from kvcanon.conformance.probe.transport import ServerProblem

REDUCE_SECONDS = 10.0
"""How long the requests of one finding are sent again."""
KEPT_FOR_REDUCTION = 3.0
"""Seconds after the deadline in which a finding of the last round can still be confirmed."""

CANARY_SHARE = 0.5
"""The part of the pool that may be computed where it may not be filled."""
CANARY_TOKENS = 50_000
"""Tokens that may be computed where the size of the pool is not known."""
KEPT_SHARE = 0.25
"""The part of the tokens that is kept for the requests which show a finding again."""

FILLS = "it fills the pool, and evicts what others have cached; --fill plays it"

POOL_LOOKS = 8
"""Times that a pool is looked at; blocks that another client holds may come free between."""
POOL_PAUSE_SECONDS = 0.2
NO_COUNTS = (
    "cached tokens: the server does not say them; start vLLM with --enable-prompt-tokens-details"
)
CACHE_OFF = (
    "nothing can be judged: prefix caching is off on this server{}; SGLang must run without "
    "--disable-radix-cache, vLLM with --enable-prefix-caching and --enable-prompt-tokens-details"
)


@frozen
class ProbeLimits:
    """What a probe may do."""

    seed: int = 0
    seconds: float = 55.0
    requests: int = 1000
    tokens: int | None = None
    """The most that the server computes; None for the usual number."""
    rate: float = math.inf
    """Requests that begin in a second."""
    at_once: int = 3
    """Requests that run at one time."""
    fill: bool = False
    """Whether the pool may be filled, which evicts what others have cached."""
    margin: float = USUAL_MARGIN
    vocabulary: int = 256
    only: frozenset[str] = frozenset()
    """Names of the rounds that are played; empty for all. The first is always played."""
    change: Callable[[], None] | None = None
    """Replaces weights or adapters of the server; None if that is not to be probed."""

    def most_tokens(self, pool_tokens: int | None) -> float:
        """How many tokens the server may be made to compute."""
        if self.tokens is not None:
            return self.tokens
        if self.fill:
            return math.inf
        return pool_tokens * CANARY_SHARE if pool_tokens else CANARY_TOKENS


@define
class ProbeSession:
    """Plays rounds against a server, judges each when it is over, and keeps the findings."""

    player: ProbePlayer
    limits: ProbeLimits
    say: Callable[[str], None] = lambda _line: None
    page: PageRange = field(init=False)
    coverage: Coverage = field(factory=Coverage)
    shown: list[ShownFinding] = field(factory=list)
    not_shown: list[str] = field(factory=list)
    near_ties: list[str] = field(factory=list)
    requests: int = 0
    hits: int = 0
    seconds: float = 0.0
    truths: dict[PromptKey, ProbeReply] = field(factory=dict)
    round_seconds: float = 0.0
    """How long the last round took."""
    short_of: str = ""
    """What ran out, by the name of its option; empty while nothing did."""
    kept_tokens: float = math.inf
    """Tokens with which findings can still be shown again."""
    unanswered: tuple[SentRequest, ...] = ()
    """The requests of a round during which the server ended; the last had no answer."""
    cuts: CutAnswers = field(init=False)

    @property
    def faults(self) -> set[ProbeFault]:
        """The kinds of the faults that were found."""
        return {each.finding.fault for each in self.shown}

    @property
    def laws(self) -> list[str]:
        """The broken laws, each once; a server that ended counts as one."""
        found = [each.finding for each in self.shown]
        return list(dict.fromkeys(each.law_id or each.fault.words for each in found))

    @property
    def verdict(self) -> ProbeVerdict:
        """The verdict of the probe."""
        return self.coverage.verdict(broken=bool(self.shown))

    def note(self, words: str) -> None:
        """Say what cannot be judged, once."""
        if words not in self.not_shown:
            self.not_shown.append(words)

    def run(self) -> Self:
        """Play all rounds. Raises: UsageError, if the server cannot be probed."""
        player, began = self.player, time.monotonic()
        said = player.facts.page_size
        self.page = PageRange(said, said) if said else PageRange()
        self.cuts = CutAnswers(player, self._vocabulary)
        if player.facts.cache_off:
            raise UsageError(CACHE_OFF.format(""))
        _require_sizes(player.facts)
        self.not_shown += [*player.facts.not_said, *_not_judged(player.facts)]
        if self.limits.only:
            self.not_shown.append("what the rounds show that --only leaves out")
        left = player.requests_left
        self._divide_tokens()
        rng = random.Random(f"kvcanon probe {self.limits.seed}")
        playing = "the first prompt"
        try:
            self._wake()
            for each in ROUNDS:
                playing = each.name
                self._play(each, random.Random(rng.random()))
                if each is ROUNDS[0] and not self.cuts.counts:
                    self._require_hits()
        except ServerProblem as problem:
            if problem.is_end:
                words, shown = f"during {playing}: {problem}", self.unanswered
                finding = ProbeFinding(ProbeFault.ENDED, words, playing, len(shown) - 1)
                self._show(finding, shown)
            elif self.shown:
                self.not_shown.append(f"what comes after {playing}: {problem}")
            else:
                raise
        self.requests = left - player.requests_left
        self.seconds = time.monotonic() - began
        return self

    def _divide_tokens(self) -> None:
        """Give the rounds most of the tokens, and keep the rest for what they find."""
        player, limits = self.player, self.limits
        player.rate = limits.rate
        tokens = limits.most_tokens(player.facts.pool_tokens)
        if math.isfinite(tokens):
            self.kept_tokens = tokens * KEPT_SHARE
            player.tokens_left = tokens - self.kept_tokens

    def _wake(self) -> None:
        """Send a prompt that is not judged, so that no round waits for what is compiled once."""
        if self.player.requests_left <= 0 or self.player.seconds_left <= 0:
            return
        first = "the first prompt"
        self.say(first)
        try:
            self.player.wake(unjudged_prompt(first, self.player.facts, self._vocabulary))
        except OutOfBudget as error:
            self.short_of = str(error)
        except ServerProblem as problem:
            if not self.cuts.is_cut(problem, first):
                raise

    def _play(self, each: ProbeRound, rng: random.Random) -> None:
        if self.limits.only and each is not ROUNDS[0] and each.name not in self.limits.only:
            return
        unknown = Unfit() if each.changes and self.limits.change is None else None
        unfit = unknown or each.unfit(self.player.facts) or self._limited(each)
        if unfit is not None:
            self._leave_out(each, unfit)
            return
        self.say(each.name)
        sent, ending = list[SentRequest](), None
        began = time.monotonic()
        try:
            self._send_all(each, rng, sent)
        except (OutOfBudget, ServerProblem) as error:
            if isinstance(error, ServerProblem) and not error.is_end:
                raise
            ending = error
        if isinstance(ending, OutOfBudget):
            self.short_of = str(ending)
        self.round_seconds = time.monotonic() - began
        is_cut = isinstance(ending, ServerProblem) and self.cuts.is_cut(ending, each.name)
        self._count(each, sent, cut_short=is_cut or isinstance(ending, OutOfBudget))
        if is_cut:
            self.coverage.missing.append(MissingPart(each.name, CUT, UNCUT))
        self._judge(sent)
        if isinstance(ending, ServerProblem) and not is_cut:
            self.unanswered = tuple(sent)
            raise ending

    def _send_all(self, each: ProbeRound, rng: random.Random, sent: list[SentRequest]) -> None:
        """Play a round, and ask for the truth of each prompt."""
        player, facts = self.player, self.player.facts
        player.begin_empty()
        held = player.api.held_share()
        with RequestSequence(player, player.fresh_run(), sent) as sequence:

            def send(request: ProbeRequest) -> SentRequest:
                if not facts.salts:
                    request = evolve(request, space=evolve(request.space, salt=""))
                return sequence.send(request, each.name)

            page, vocabulary = self.page, self._vocabulary
            each.play(PromptSender(rng, facts, page, vocabulary, send, sent, self._change))
            sequence.finish()
        if each is ROUNDS[0]:
            self._learn(sent)
        if held is not None and ProbeFault.HELD not in self.faults:
            self._look_at_pool(held, each, sent)
        self._find_truths(sent)

    def _change(self) -> None:
        """Replace weights or adapters, however long that takes."""
        began = time.monotonic()
        if self.limits.change is not None:
            self.limits.change()
        self.player.deadline += time.monotonic() - began

    @property
    def _vocabulary(self) -> int:
        """Token ids of prompts are below it."""
        usual = self.limits.vocabulary
        return min(usual, self.player.facts.vocabulary or usual)

    def _count(self, each: ProbeRound, sent: Sequence[SentRequest], *, cut_short: bool) -> None:
        """Note what a round took."""
        if sent and all(one.reply.cached is None for one in sent if not one.reply.aborted):
            self.note(NO_COUNTS)
        hits = sum(1 for one in sent if one.reply.cached)
        self.hits += hits
        self.coverage.played.append(
            PlayedRound(each.name, each.purpose, len(sent), hits, cut_short)
        )
        if cut_short and self.short_of:
            end = f"the end of {each.name}"
            self._miss(MissingPart(each.name, self._none_left, f"raise --{self.short_of}"), end)

    @property
    def _none_left(self) -> str:
        return f"no {self.short_of} are left"

    def _miss(self, part: MissingPart, named: str) -> None:
        """Note what was to be played and was not."""
        self.coverage.missing.append(part)
        self.not_shown.append(evolve(part, what=named).words)

    def _leave_out(self, each: ProbeRound, unfit: Unfit) -> None:
        """Note why a round is not played, and whether a verdict needs it."""
        named = f"{each.name} ({each.purpose})"
        if each.fills and not self.limits.fill:
            if unfit.words:
                self.not_shown.append(f"{named}: {FILLS}")
        elif unfit.mend:
            self._miss(MissingPart(each.name, unfit.words, unfit.mend), named)
        elif unfit.words or each.name in self.limits.only:
            why = unfit.words or "it does not apply to this server, or to what is known of it"
            self.not_shown.append(f"{named}: {why}")

    def _limited(self, each: ProbeRound) -> Unfit | None:
        """Why a round cannot be played within the limits."""
        player, limits = self.player, self.limits
        if each.fills and not limits.fill:
            return Unfit(FILLS)
        if each.at_once > limits.at_once:
            why = f"it has {each.at_once} requests running at once"
            return Unfit(why, f"raise --at-once to {each.at_once}")
        if player.seconds_left <= 0:
            self.short_of = SECONDS
        elif player.requests_left <= 0:
            self.short_of = REQUESTS
        if self.short_of:
            return Unfit(self._none_left, f"raise --{self.short_of}")
        tokens = int(each.pools * (player.facts.pool_tokens or 0))
        if tokens > player.tokens_left:
            return Unfit(f"it computes {tokens} tokens", f"raise --{TOKENS}")
        if tokens and player.seconds_for(tokens) > player.seconds_left / 2:
            needed = 2 * player.seconds_for(tokens)
            return Unfit(f"{tokens} tokens take too long", f"try --seconds {needed + 60:.0f}")
        return None

    def _learn(self, sent: Sequence[SentRequest]) -> None:
        """Learn the page size from prompts that were sent twice."""
        if not any(each.reply.cached for each in sent):
            return
        if self.page.known is None:
            self.page = learned_page(sent)
        if self.player.facts.window is None and not page_fits(sent, self.page):
            # Draft models and layers with states need more than the last token computed.
            self.page = evolve(self.page, most=None)
            self.not_shown.append(
                "cached tokens from below: prompts that were sent twice did not find all their "
                "whole pages, which is right for some models; with --window 0 it is judged"
            )

    def _require_hits(self) -> None:
        if self.player.facts.window is None:
            self.not_shown.append(
                "cached tokens from below where prompts fork: it is not known whether a layer has "
                "a window or a state; give --window, 0 if none has"
            )
        if not (self.hits or self.shown or NO_COUNTS in self.not_shown):
            raise UsageError(CACHE_OFF.format(": no prompt that was sent twice had cached tokens"))

    def _look_at_pool(self, before: float, played: ProbeRound, sent: Sequence[SentRequest]) -> None:
        """Look whether requests that ended hold a part of the pool. Raises: ServerProblem."""
        for look in range(POOL_LOOKS):
            time.sleep(POOL_PAUSE_SECONDS if look else 0)
            held = self.player.api.held_share()
            if held is None or held <= before + 1e-9:
                return
        some = "some requests were aborted" if _has_aborts(sent) else "the round"
        words = (
            f"{played.name}: {held:.2%} of the pool is held when no request runs, and "
            f"{before:.2%} was before {some}"
        )
        self._show(ProbeFinding(ProbeFault.HELD, words, played.name), sent)

    def _show(self, finding: ProbeFinding, sent: Sequence[SentRequest]) -> None:
        self.shown.append(ShownFinding(finding, tuple(sent), repeated=False))

    def _find_truths(self, sent: Sequence[SentRequest]) -> None:
        """Ask for the reply to each prompt without a cache."""
        counts: dict[PromptKey, int] = {}
        for each in sent:
            key = each.request.key
            counts[key] = max(counts.get(key, 0), len(each.reply.tokens), 1)
        for each in sent:
            key = each.request.key
            if key in self.truths:
                continue
            cold = self.player.cold(each.request, counts[key])
            if cold is None:
                self.note(
                    "tokens: the server takes no cache_salt; allow --flush to empty its cache"
                )
                return
            if cold.cached:
                self.note("tokens of prompts that are cached even under a fresh salt")
                continue
            self.truths[key] = cold

    def _judge(self, sent: Sequence[SentRequest]) -> None:
        """Judge a round, and find the requests that show each kind of finding."""
        facts, limits = self.player.facts, self.limits
        fresh = facts.salts or self.player.may_flush
        by = JudgedAgainst(facts, self.page, limits.margin, fresh, self.truths)
        self._count_ties(sent)
        self._note_unchanged(sent, by)
        by_kind: dict[ProbeFault, ProbeFinding] = {}
        for finding in judge_sent(sent, by):
            by_kind.setdefault(finding.fault, finding)
        self._note_short(sent)
        for finding in self._found_beside():
            if finding.fault not in self.faults:
                self._show(finding, sent)
        for fault, finding in by_kind.items():
            if fault in self.faults:
                continue
            if fault is ProbeFault.TOKENS and not self._repeats_itself(sent[finding.at], by):
                self.note("tokens: the server does not repeat itself without a cache")
                continue
            shown, ran_out = self._reduced(sent, finding, by)
            if shown.repeated or fault not in NEEDS_REPLAY:
                self.shown.append(shown)
            elif ran_out:
                self._miss_replay(finding, ran_out)
            else:
                self.not_shown.append(
                    f"not each time, so that another client may be the cause: {finding.words}"
                )

    def _reduced(
        self, sent: Sequence[SentRequest], finding: ProbeFinding, by: JudgedAgainst
    ) -> tuple[ShownFinding, str]:
        """What shows a finding, and what ran out before it was known whether it comes again."""
        whole = ShownFinding(finding, tuple(sent[: finding.last + 1]), repeated=False)
        if finding.fault in LEAKS or any(each.request.is_before_change for each in sent):
            return whole, ""
        # What a whole round shows takes as long to show again, and a reply that goes on is cut when
        # half of the time is over.
        least = max(KEPT_FOR_REDUCTION, 3 * self.round_seconds)
        seconds = max(least, min(REDUCE_SECONDS, self.player.seconds_left / 2))
        cuts = self.cuts.counts.total()
        with self._extra_time(seconds, finding.round):
            reducer = Reducer(self.player, by)
            return reducer.reduce(sent, finding), reducer.starved
        return whole, CUT if self.cuts.counts.total() > cuts else ""

    def _miss_replay(self, finding: ProbeFinding, ran_out: str) -> None:
        """Note a finding of which it is not known whether it comes again."""
        again = f"--only {finding.round} and a higher --rate"
        mend = f"raise --{TOKENS}" if ran_out == TOKENS else f"play it again with {again}"
        why, mend = (CUT, UNCUT) if ran_out == CUT else (f"no {ran_out} are left", mend)
        what = f"{finding.fault.words} in {finding.round}, once more"
        part = MissingPart(what, why, mend, is_round=False)
        self._miss(part, f"whether this comes again: {finding.words}")

    @contextmanager
    def _extra_time(self, seconds: float, round_name: str) -> Iterator[None]:
        """Let a finding be confirmed: within its own time, and without a look at the stream.

        If the server ends meanwhile, the round that goes on meets it as it is now.
        """
        player = self.player
        deadline, requests, beside = player.deadline, player.requests_left, player.beside
        tokens = player.tokens_left
        player.deadline = time.monotonic() + seconds
        player.requests_left, player.beside = 1, None
        player.tokens_left = self.kept_tokens
        try:
            yield
        except ServerProblem as problem:
            if not self.cuts.is_cut(problem, round_name) and not problem.is_end:
                raise
        finally:
            player.deadline, player.requests_left, player.beside = deadline, requests, beside
            self.kept_tokens, player.tokens_left = player.tokens_left, tokens
            if beside is not None:
                beside.settle("replays")
                self._found_beside()

    def _found_beside(self) -> Sequence[ProbeFinding]:
        """The findings of the stream since the last call."""
        beside, asked = self.player.beside, self.player.computed > 0
        return () if beside is None else beside.take_found(sent=asked)

    def _repeats_itself(self, sent: SentRequest, by: JudgedAgainst) -> bool:
        """Whether a prompt gives the same reply twice when nothing of it is cached."""
        truth = self.truths[sent.request.key]
        with self._extra_time(KEPT_FOR_REDUCTION, sent.round):
            again = self.player.cold(sent.request, len(truth.tokens))
            return again is not None and (
                compare_replies(again, truth, by.margin).closeness is not Closeness.DIFFERENT
            )
        return True

    def _note_short(self, sent: Sequence[SentRequest]) -> None:
        """Note where a reply ended before the requests were answered that were to press it out."""
        going_on = (one for one in sent if one.round == "together")
        each = max(going_on, key=lambda one: one.request.overlaps, default=None)
        if each is not None and each.lasted < each.request.overlaps:
            self.note(
                f"what a request holds while it runs: the reply to {each.request.name!r} ended "
                f"after {each.lasted} of {each.request.overlaps} requests that were sent meanwhile"
            )

    def _note_unchanged(self, sent: Sequence[SentRequest], by: JudgedAgainst) -> None:
        """Note that replies are the same before and after a change."""
        before = [each for each in sent if each.request.is_before_change]
        if before and not by.changed(sent):
            why = "replies are the same as before, so that nothing is known to be replaced"
            mend = "give --changed a command that replaces weights or an adapter"
            self._miss(MissingPart(before[0].round, why, mend), "a change of weights")

    def _count_ties(self, sent: Sequence[SentRequest]) -> None:
        for each in sent:
            truth = self.truths.get(each.request.key)
            if truth is None or each.request.is_before_change:
                continue
            compared = compare_replies(each.reply, truth, self.limits.margin)
            if compared.closeness is Closeness.NEAR_TIE:
                self.near_ties.append(f"{each.round}: {each.request.name}: {compared.words}")
            elif compared.closeness is Closeness.UNKNOWN:
                why = (
                    "all that the server names as the likeliest are nearly as likely"
                    if each.reply.scores and truth.scores
                    else "the server gives no log-probabilities"
                )
                self.note(f"tokens that differ: {why}")


def _has_aborts(sent: Sequence[SentRequest]) -> bool:
    return any(each.request.abort_after for each in sent)


def _require_sizes(facts: EngineFacts) -> None:
    """Refuse sizes for which no prompts can be drawn. Raises: UsageError."""
    page, context = facts.page_size or 1, facts.context_tokens or LEAST_CONTEXT_TOKENS
    if page > MOST_PAGE_TOKENS:
        raise UsageError(
            f"pages of {page} tokens are larger than those of any engine; is the size right? "
            "--page says another"
        )
    if context < LEAST_CONTEXT_TOKENS:
        raise UsageError(
            f"a context of {context} tokens is too short for a probe, which needs "
            f"{LEAST_CONTEXT_TOKENS}; is this the address of the model?"
        )


def _not_judged(facts: EngineFacts) -> list[str]:
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
