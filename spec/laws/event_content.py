"""EVENT, continued: what a store says of its page: its hash, parent, tokens and namespace."""

from __future__ import annotations

from collections.abc import Iterator

from kvcanon.spec.events import BlockStored
from kvcanon.spec.hashing import namespace_seed, page_hash
from kvcanon.spec.law import Kind, LawClass, Need, Premise, Stream, law
from kvcanon.spec.laws import premises, situations, visibility
from kvcanon.spec.laws.page_hashes import changed_pages, short
from kvcanon.spec.views import Step

NEEDS = (Need.SNAPSHOT, Need.EVENTS)


@law(
    "EVENT-6",
    Kind.STREAM,
    LawClass.SOUND,
    premise=premises.STREAM_STORE,
    needs=NEEDS,
    from_outside=(visibility.EVENTS,),
)
def hashes_chain(stream: Stream) -> Iterator[str]:
    """The hash in a store is that of its page after its parent hash, or after its namespace's seed.

    A store without a parent hash is of a first page of the namespace.

    Why: with another hash, a router that computes hashes from prompts never finds the page, or
    finds another tenant's.

    Seen broken: https://github.com/sgl-project/sglang/issues/24568,
    https://github.com/vllm-project/vllm/issues/44103
    """
    if not stream.state.config.events:
        return
    for event in stream.events:
        if not isinstance(event, BlockStored):
            continue
        seed = namespace_seed(event.namespace)
        if event.parent_hash == seed:
            yield (
                f"page {short(event.block_hash)} names its namespace's seed as its parent; "
                "the first page has none"
            )
        expected = page_hash(seed if event.parent_hash is None else event.parent_hash, event.page)
        if event.block_hash != expected:
            yield (
                f"the page {event.page} was stored as {short(event.block_hash)}; after "
                f"{'the seed' if event.parent_hash is None else short(event.parent_hash)} of "
                f"{event.namespace} its hash is {short(expected)}"
            )


@law(
    "EVENT-7",
    Kind.STEP,
    LawClass.SOUND,
    premise=Premise[Step](
        "a store of a page that has a parent",
        lambda step: situations.stores_a_child(step.events),
    ),
    needs=NEEDS,
    from_outside=(visibility.EVENTS,),
)
def parent_is_the_page_before(step: Step) -> Iterator[str]:
    """A store names the page before its own as parent, and its own tokens and namespace.

    After a cut, the parent of a new branch is the last page that the branches share.

    Why: otherwise a router attaches the page to another prefix, and promises it to the wrong
    prompts.

    Seen broken: https://github.com/sgl-project/sglang/pull/24718,
    https://github.com/vllm-project/vllm-ascend/issues/12252
    """
    if not step.after.config.events or not _stores(step):
        return
    before, after = changed_pages(step)
    for event in _stores(step):
        place, state = after.get(event.block_hash), step.after
        if place is None:
            place, state = before.get(event.block_hash), step.before
        if place is None:
            continue
        where = place.describe(state)
        if event.parent_hash != place.parent:
            yield (
                f"{where} was stored with parent {short(event.parent_hash)}; the page before it is "
                f"{short(place.parent)}"
            )
        if (event.page, event.namespace) != (place.node.pages[place.at], place.node.namespace):
            page = place.node.pages[place.at]
            yield (
                f"{where} was stored as {event.page} in {event.namespace}; it is {page} in "
                f"{place.node.namespace}"
            )


@law(
    "EVENT-9",
    Kind.STREAM,
    LawClass.SERVING,
    premise=premises.STREAM_STORE,
    needs=NEEDS,
    from_outside=(visibility.EVENTS,),
)
def one_page_an_event(stream: Stream) -> Iterator[str]:
    """Every store carries exactly one page: `page_size` tokens, or pairs of tokens for bigrams.

    Why: if hashes and tokens do not line up, a router computes wrong hashes for all later pages.

    Seen broken: https://github.com/vllm-project/vllm/issues/44451
    """
    config = stream.state.config
    if not config.events:
        return
    for event in stream.events:
        if not isinstance(event, BlockStored):
            continue
        if len(event.page) != config.page_size:
            yield (
                f"page {short(event.block_hash)} was stored with {len(event.page)} units; a page "
                f"has {config.page_size}"
            )
        elif set(map(type, event.page)) != {tuple if config.bigram else int}:
            yield (
                f"page {short(event.block_hash)} was stored with units {event.page}; units are "
                f"{'pairs of tokens' if config.bigram else 'tokens'}"
            )


def _stores(step: Step) -> list[BlockStored]:
    return [event for event in step.events if isinstance(event, BlockStored)]
