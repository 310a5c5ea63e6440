"""`kvcanon replay` of caches that offer little: of requests, behind pipes, without all calls."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from command_line import read, read_json, usage_error

SHORT = ("--limit", "25")

OFFERING = """
from attrs import evolve
from hash_blocks import ADAPTER as REQUESTS
from kvcanon.conformance import Adapter, Offer
from kvcanon.reference import ReferenceCache
from kvcanon.spec.types import EvictionPolicy, WritePolicy

class Least(ReferenceCache):
    free_slots = take_events = read = write = None
    evict = evict_host = load_back = insert_host = poll = flush = None
    unlock_window = reset = snapshot = None

class Leaky(Least):
    def unlock(self, receipt):
        pass

class Boasting(Least):
    def match(self, key):
        return evolve(super().match(key), prefix_pages=len(key))

OFFER = Offer(
    page_sizes=(4, 16),
    windows_tokens=(None,),
    mamba=(False,),
    write_policies=(WritePolicy.NONE,),
    eviction_policies=(EvictionPolicy.LFU,),
    namespaces=False,
    least_slots=600,
    events=(False,),
)
LEAST = Adapter("mine", Least, OFFER)
BOASTING = Adapter("mine", Boasting, OFFER)
BIGRAMS = Adapter("mine", Least, Offer(bigram=(True,)))
ALWAYS_COPIES = Adapter("mine", ReferenceCache, Offer(write_policies=(WritePolicy.WRITE_BACK,)))
STATES = Adapter("mine", ReferenceCache, Offer(mamba=(True,)))
"""


@pytest.fixture
def offering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder with a module of caches that offer little."""
    (tmp_path / "offering.py").write_text(OFFERING, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "offering", raising=False)


@pytest.mark.usefixtures("offering")
def test_replay_of_a_cache_that_offers_little(capsys: pytest.CaptureFixture[str]) -> None:
    """Sizes are brought to the offer, what the cache lacks is left out, and the report says so."""
    read_out = read_json(capsys, "replay", "offering:LEAST", *SHORT)
    config, result = read_out["config"], read_out["result"]
    assert (config["page_size"], config["window_tokens"]) == (4, None)
    assert (config["write_policy"], config["eviction_policy"]) == ("none", "lfu")
    assert config["device_slots"]["full"] == 600
    assert not config["events"]
    assert result["tree"] is None
    assert 0 < result["hit_rate"] < 1
    assert set(result["operations"]) == {"match", "lock", "allocate", "insert", "unlock"}
    notes = "; ".join(read_out["notes"])
    for words in (
        "page size 4, as 8 is not offered",
        "window tokens None, as 64 is not offered",
        "no host tier",
        "eviction policy lfu",
        "a pool of 600 pages",
        "all prompts are in one namespace",
        "without evict, prompts that do not fit are rejected",
        "without snapshot, the tree is not shown",
    ):
        assert words in notes
    printed = read(capsys, "replay", "offering:LEAST", *SHORT)
    assert "notes" in printed
    assert "not shown" in printed


@pytest.mark.usefixtures("offering")
def test_replay_without_evict_rejects_what_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    """A cache that cannot evict serves until it is full."""
    result = read_json(capsys, "replay", "offering:LEAST", "--conversations", "40")["result"]
    assert 0 < result["rejected"] < result["requests"]
    assert "evict" not in result["operations"]


@pytest.mark.usefixtures("offering")
def test_replay_judges_a_cache_without_snapshot(capsys: pytest.CaptureFixture[str]) -> None:
    """At rate 1 answers are judged; a share of them cannot be."""
    judgement = read_json(capsys, "replay", "offering:LEAST", *SHORT, "--guard", "1")["result"][
        "judgement"
    ]
    assert judgement["judged"] == judgement["steps"] > 100
    assert judgement["broken"] == []
    assert judgement["laws"]["MATCH-2"] > 0
    broken = read_json(capsys, "replay", "offering:BOASTING", *SHORT, "--guard", "1", code=1)
    assert "MATCH-1" in broken["result"]["judgement"]["broken"]
    line = usage_error(capsys, "replay", "offering:LEAST", *SHORT, "--guard", "0.5")
    assert "rate is 0.5; a cache without `snapshot` is judged at each call" in line


@pytest.mark.usefixtures("offering")
@pytest.mark.parametrize("guard", ["0", "1"])
def test_replay_of_a_cache_of_requests(capsys: pytest.CaptureFixture[str], guard: str) -> None:
    """A cache of requests admits and finishes each request."""
    read_out = read_json(capsys, "replay", "offering:REQUESTS", *SHORT, "--guard", guard)
    result = read_out["result"]
    assert result["hit_rate"] > 0.2
    assert {"admit", "finish"} <= set(result["operations"])
    assert "extend" not in result["operations"]
    assert not any("evict" in note for note in read_out["notes"])
    if guard == "1":
        assert result["judgement"]["broken"] == []
        assert result["judgement"]["laws"]["MATCH-6"] > 0
    assert "admit" in read(capsys, "replay", "offering:REQUESTS", *SHORT)


@pytest.mark.usefixtures("offering")
def test_replay_of_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    """A cache behind a pipe is replayed, copies to the host included."""
    served = f"pipe:{sys.executable} -m kvcanon.conformance.protocol.pipe_server reference"
    result = read_json(capsys, "replay", served, "--limit", "60")["result"]
    alone = read_json(capsys, "replay", "reference", "--limit", "60")["result"]
    for name in ("device_hit_tokens", "host_hit_tokens", "load_backs", "backups", "evicted"):
        assert result[name] == alone[name]
    assert result["load_backs"] > 0


@pytest.mark.usefixtures("offering")
def test_replay_has_a_host_tier_or_states_where_a_cache_always_has(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A cache that offers nothing else gets a host tier, or mamba states."""
    copies = read_json(capsys, "replay", "offering:ALWAYS_COPIES", *SHORT)["config"]
    assert copies["write_policy"] == "write_back"
    assert copies["host_slots"]["full"] > 0
    assert read_json(capsys, "replay", "offering:STATES", *SHORT)["config"]["mamba"] is True


@pytest.mark.usefixtures("offering")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("LEAST --page-size 8", "does not offer --page-size 8; it offers 4, 16"),
        ("LEAST --window 64", "does not offer --window 64; it offers None"),
        ("LEAST --write-policy write_back", "does not offer --write-policy write_back"),
        ("LEAST --eviction-policy lru", "does not offer --eviction-policy lru; it offers lfu"),
        ("LEAST --pool-tokens 100", "makes a pool of 25 pages"),
        ("LEAST --mamba-states 4", "does not offer --mamba-states"),
        ("BIGRAMS", "offers keys of bigrams alone"),
    ],
)
def test_replay_refuses_what_is_not_offered(
    capsys: pytest.CaptureFixture[str], arguments: str, said: str
) -> None:
    """A value of the command line that the cache does not offer is named with those it offers."""
    assert said in usage_error(capsys, "replay", *f"offering:{arguments}".split(), *SHORT)
