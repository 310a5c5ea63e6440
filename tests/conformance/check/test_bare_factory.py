"""A bare factory is judged by what it knows; what it ignores altogether counts as not offered."""

from __future__ import annotations

import pytest
from attrs import evolve

import bare
from few_cases import FEW, plan_of
from kvcanon.conformance.cases.case import Case, case_from_json, case_to_json
from kvcanon.conformance.check.bare_factory import Ignored, ignored_by, ignoring, without
from kvcanon.conformance.check.check import check
from kvcanon.conformance.check.plan import CheckPlan
from kvcanon.conformance.check.result import CacheResult, Standing
from kvcanon.conformance.protocol.adapter import Adapter, CacheKind, MakeCache, Offer
from kvcanon.conformance.protocol.cache_names import load_adapter
from kvcanon.conformance.report.report import report_of
from kvcanon.conformance.report.text import judged_as, text_report
from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import EvictionPolicy, WritePolicy

OF_ATTENTION = (Ignored.WINDOWS, Ignored.STATES, Ignored.HOST, Ignored.POLICIES)


@pytest.mark.parametrize(
    ("make", "ignored"),
    [
        (bare.Plain, OF_ATTENTION),
        (bare.WithoutNamespaces, (*OF_ATTENTION, Ignored.NAMESPACES)),
        (bare.WithoutAdapters, OF_ATTENTION),
        (bare.WithoutSalts, OF_ATTENTION),
        (bare.EndsIfAsked, OF_ATTENTION[2:]),
        (ReferenceCache, ()),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_what_is_ignored_altogether_is_seen(make: MakeCache, ignored: tuple[Ignored, ...]) -> None:
    """A cache ignores what it pays no heed to at all; one field of a namespace is enough heed."""
    assert ignored_by(Adapter("it", make, is_bare=True)) == ignored
    assert ignored_by(Adapter("it", make)) == ()
    assert ignored_by(Adapter("it", make, kind=CacheKind.REQUEST, is_bare=True)) == ()


def test_a_factory_by_name_is_bare() -> None:
    """A class or a function that is named is bare, and an adapter is not."""
    assert load_adapter("bare:Plain").is_bare
    assert not load_adapter("reference").is_bare


def test_what_is_ignored_is_not_offered() -> None:
    """An offer loses what a cache ignores, and nothing else."""
    assert without(Offer(), ()) == Offer()
    assert without(Offer(), tuple(Ignored)) == evolve(
        Offer(),
        windows_tokens=(None,),
        mamba=(False,),
        write_policies=(WritePolicy.NONE,),
        eviction_policies=(EvictionPolicy.LRU,),
        namespaces=False,
    )


def checked(name: str) -> tuple[CacheResult, CheckPlan]:
    """The result of a small check of a factory."""
    plan = plan_of(name, only=["walker", "vectors"], effort=evolve(FEW, walker_cases=32))
    (cache,) = check(plan, apart=False).caches
    return cache, plan


@pytest.mark.parametrize("name", ["Plain", "WithoutNamespaces"])
def test_a_full_attention_cache_is_accused_of_nothing(name: str) -> None:
    """A cache without windows or namespaces breaks no law, and the report says what it ignores."""
    plan = plan_of(f"bare:{name}", only=["walker", "vectors"], effort=evolve(FEW, walker_cases=32))
    report = report_of(check(plan, apart=False))
    (cache,) = report.caches
    assert not cache.failures
    assert cache.result.standings["ALLOC-3"] is Standing.HELD
    (line,) = judged_as(report)
    assert line.startswith(f"bare:{name} is judged as a full-attention cache")
    assert ("without namespaces" in line) == (name == "WithoutNamespaces")
    assert list(text_report(report, {}))[-2] == line


@pytest.mark.parametrize("name", ["WithoutAdapters", "WithoutSalts"])
def test_a_fault_in_one_field_of_a_namespace_is_found(name: str) -> None:
    """A cache that heeds namespaces in part is judged on all of them."""
    cache, _ = checked(f"bare:{name}")
    assert cache.standings["MATCH-1"] is Standing.BROKEN


def test_a_line_says_what_is_ignored() -> None:
    """The line has the kind of the cache, what it ignores, and what to declare."""
    assert ignoring("it", (Ignored.WINDOWS,)) == (
        "it is judged as a cache: it ignores windows. "
        "To be judged on all, name an Adapter(name, factory, Offer())."
    )
    assert "a cache without namespaces: it ignores namespaces; tenants" in ignoring(
        "it", (Ignored.NAMESPACES,)
    )


def test_a_case_says_that_it_has_one_namespace() -> None:
    """A case of a cache without namespaces is the same for who loads the factory again."""
    case = Case(CacheConfig(), (), one_namespace=True)
    assert case_from_json(case_to_json(case)) == case
    assert "one_namespace" not in case_to_json(evolve(case, one_namespace=False))
