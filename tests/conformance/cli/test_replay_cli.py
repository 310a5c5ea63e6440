"""`kvcanon replay`: the report, the options, and the exit codes."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from command_line import KVCANON, read, read_json, usage_error
from kvcanon.conformance.cli import main
from kvcanon.spec.law import LAWS

SHORT = ("--limit", "25")

CACHES = '''
from kvcanon.reference import ReferenceCache

class Leaky(ReferenceCache):
    """Forgets to release a lock."""
    def unlock(self, receipt):
        pass

class Crashing(ReferenceCache):
    def lock(self, key):
        return {}["nothing"]

class Refusing(ReferenceCache):
    def unlock(self, receipt):
        super().unlock(receipt)
        super().unlock(receipt)

def no_cache(config):
    raise RuntimeError("no pools today")


def no_object(config):
    return None

not_callable = 3
'''


@pytest.fixture
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder with a module of caches."""
    (tmp_path / "their_caches.py").write_text(CACHES, encoding="utf-8")
    (tmp_path / "their_script.py").write_text("import sys\nsys.exit(0)\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "their_caches", raising=False)


def test_replay_reports_what_happened(capsys: pytest.CaptureFixture[str]) -> None:
    """The report has the seed and every count, and says that nothing was judged."""
    printed = read(capsys, "replay", "reference", "--limit", "200")
    assert re.match(r"replay reference  generated chat, \d+ conversations, seed 0\n", printed)
    for row in ("cache", "requests", "prompts", "hit rate", "evicted", "backups", "load-backs"):
        assert f"\n  {row} " in printed
    for operation in ("match", "lock", "allocate", "insert", "evict", "load_back", "unlock"):
        assert f"\n  {operation} " in printed
    assert "Not judged" in printed


def test_replay_json_is_the_same_for_the_same_seed(capsys: pytest.CaptureFixture[str]) -> None:
    """The same seed gives the same result, and another seed another."""
    first, second, other = (
        read_json(capsys, "replay", "reference", *SHORT, "--seed", seed) for seed in "778"
    )
    timed = {"operations", "cache_seconds", "requests_per_second"}
    for each in (first, second, other):
        each["result"] = {k: v for k, v in each["result"].items() if k not in timed}
    assert first == second
    assert first["result"] != other["result"]
    assert first["seed"] == 7


def test_replay_options_reach_the_cache(capsys: pytest.CaptureFixture[str]) -> None:
    """The options set the configuration of the cache."""
    options = (
        "--page-size=4 --pool-tokens=4003 --host-tokens=8000 --window=32 --swa-tokens=1000"
        " --mamba-states=5 --write-policy=write_back --eviction-policy=lfu --no-events"
    )
    config = read_json(capsys, "replay", "reference", *SHORT, *options.split())["config"]
    assert config["page_size"] == 4
    assert config["window_tokens"] == 32
    assert config["device_slots"] == {"full": 1000, "swa": 250, "mamba": 5}
    assert config["host_slots"] == {"full": 2000, "swa": 500, "mamba": 10}
    assert (config["write_policy"], config["eviction_policy"]) == ("write_back", "lfu")
    assert config["mamba"] is True
    assert config["events"] is False


def test_replay_without_window_and_host_has_neither(capsys: pytest.CaptureFixture[str]) -> None:
    """Zero switches window and host tier off."""
    read_config = read_json(
        capsys, "replay", "reference", *SHORT, "--window", "0", "--host-tokens", "0"
    )["config"]
    assert read_config["window_tokens"] is None
    assert read_config["write_policy"] == "none"
    assert read_config["device_slots"]["swa"] == 0


def test_replay_write_policy_none_is_no_host_tier(capsys: pytest.CaptureFixture[str]) -> None:
    """The write policy none switches the host tier off."""
    result = read_json(capsys, "replay", "reference", *SHORT, "--write-policy", "none")
    assert result["config"]["host_slots"]["full"] == 0


def test_replay_unlimited_pool_evicts_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """With an unlimited pool nothing is evicted."""
    result = read_json(capsys, "replay", "reference", "--pool-tokens=unlimited", "--window=0")
    assert result["result"]["evicted"] == {"full": 0, "swa": 0, "mamba": 0}
    assert result["result"]["requests"] > 600


def test_replay_reads_a_trace(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The requests of a trace are replayed."""
    trace = tmp_path / "some.jsonl"
    line = {"timestamp": 0, "input_length": 700, "output_length": 1, "hash_ids": [1, 2]}
    trace.write_text(f"{json.dumps(line)}\n" * 3, encoding="utf-8")
    result = read_json(capsys, "replay", "reference", "--trace", str(trace))
    assert result["workload"] == "some.jsonl"
    assert result["config"]["page_size"] == 64
    assert result["result"]["requests"] == 3
    assert result["result"]["device_hit_tokens"] == 2 * 640


def test_replay_guarded_checks_laws(capsys: pytest.CaptureFixture[str]) -> None:
    """With --guard 1 every step is judged."""
    judgement = read_json(capsys, "replay", "reference", *SHORT, "--guard", "1")["result"][
        "judgement"
    ]
    assert judgement["broken"] == []
    assert judgement["judged"] == judgement["steps"] > 100
    assert judgement["laws"].keys() <= LAWS.keys()
    assert sum(judgement["laws"].values()) > 1000


def test_replay_seed_draws_the_sample_of_the_guard(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The seed decides which steps are judged."""
    trace = tmp_path / "some.jsonl"
    line = {"timestamp": 0, "input_length": 700, "output_length": 1, "hash_ids": [1, 2]}
    trace.write_text(f"{json.dumps(line)}\n" * 5, encoding="utf-8")
    arguments = ("replay", "reference", "--trace", str(trace), "--guard", "0.5", "--seed")
    exercised = [
        read_json(capsys, *arguments, seed)["result"]["judgement"]["laws"] for seed in "1231"
    ]
    assert exercised[0] == exercised[3]
    assert exercised[0] != exercised[1] or exercised[0] != exercised[2]


def test_replay_guarded_says_that_no_law_is_broken(capsys: pytest.CaptureFixture[str]) -> None:
    """The report of a guarded replay has a verdict."""
    assert "No law is broken." in read(capsys, "replay", "reference", *SHORT, "--guard", "1")


@pytest.mark.usefixtures("caches")
def test_replay_broken_law_exits_1_with_words(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A broken law is explained, and the exit code is 1."""
    arguments = ("replay", "their_caches:Leaky", *SHORT, "--guard", "1")
    printed = read(capsys, *arguments, code=1)
    assert re.search(r"^BROKEN: .*LOCK-\d+", printed, re.MULTILINE)
    assert re.search(r"^LOCK-\d+ \w+: ", printed, re.MULTILINE)
    judgement = read_json(capsys, *arguments, code=1)["result"]["judgement"]
    assert any(law_id.startswith("LOCK-") for law_id in judgement["broken"])
    assert "Unlock(" in judgement["words"]


@pytest.mark.usefixtures("caches")
def test_replay_unguarded_does_not_see_a_broken_law(capsys: pytest.CaptureFixture[str]) -> None:
    """Without --guard there is no verdict."""
    assert "Not judged" in read(capsys, "replay", "their_caches:Leaky", "--limit", "5")


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
    assert "for this cache" in printed
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


def test_replay_that_judged_nothing_fails(capsys: pytest.CaptureFixture[str]) -> None:
    """A guarded replay that judged nothing exits with 2."""
    assert main(["replay", "reference", "--limit", "1", "--guard", "0.0001"]) == 2
    assert "nothing was judged" in capsys.readouterr().err


@pytest.mark.usefixtures("caches")
@pytest.mark.parametrize(
    ("cache", "said"),
    [
        ("optimised", "package.module:factory, or a child process as pipe:COMMAND"),
        ("their_caches", "no cache 'their_caches'; name reference"),
        (":factory", "no cache ':factory'"),
        ("no.such:factory", "no.such cannot be imported: ModuleNotFoundError"),
        (
            "their_script:factory",
            "their_script cannot be imported: SystemExit: 0 (their_script.py:",
        ),
        ("their_caches:nothing", "their_caches has no factory 'nothing'"),
        ("their_caches:not_callable", "their_caches:not_callable is no factory but a "),
        ("their_caches:no_cache", "made no cache: RuntimeError: no pools today (their_caches.py:"),
        ("their_caches:no_object", "the factory of their_caches:no_object returned None"),
        ("their_caches:Crashing", "failed: KeyError: 'nothing' (their_caches.py:"),
        ("their_caches:Refusing", "failed: ReceiptSpent: receipt "),
    ],
)
def test_replay_faulty_cache_is_one_line(
    capsys: pytest.CaptureFixture[str], cache: str, said: str
) -> None:
    """A cache that cannot be loaded or that crashes is one line on stderr."""
    assert said in usage_error(capsys, "replay", cache, *SHORT)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--page-size", "0"),
        ("--page-size", "many"),
        ("--pool-tokens", "-1"),
        ("--pool-tokens", "lots"),
        ("--pool-tokens", "7"),
        ("--host-tokens", "-1"),
        ("--window", "-1"),
        ("--swa-tokens", "-1"),
        ("--mamba-states", "-1"),
        ("--conversations", "0"),
        ("--limit", "0"),
        ("--guard", "1.5"),
        ("--guard", "nan"),
        ("--seed", "x"),
        ("--write-policy", "sometimes"),
        ("--eviction-policy", "random"),
        ("--trace", "/no/such/trace.jsonl"),
        ("--trace", "/"),
        ("--bogus", "1"),
    ],
)
def test_replay_option_at_fault_is_named(
    capsys: pytest.CaptureFixture[str], option: str, value: str
) -> None:
    """A wrong option is named."""
    assert option in usage_error(capsys, "replay", "reference", f"{option}={value}")


def test_replay_host_pool_without_policy_names_the_option(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A host pool without a write policy is refused."""
    line = usage_error(capsys, "replay", "reference", "--write-policy=none", "--host-tokens=100")
    assert "--write-policy" in line


def test_replay_malformed_trace_names_file_and_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A malformed trace is refused, with file and line."""
    trace = tmp_path / "bad.jsonl"
    trace.write_text('{"timestamp": 0}\n', encoding="utf-8")
    line = usage_error(capsys, "replay", "reference", "--trace", str(trace))
    assert line == f"kvcanon: {trace}:1: input_length is missing"


def test_piped_replay_prints_the_report_and_nothing_besides() -> None:
    """In a pipe only the report is printed."""
    done = subprocess.run(
        [*KVCANON, "replay", "reference", *SHORT], capture_output=True, check=True
    )
    assert done.stderr == b""
    assert b"\x1b" not in done.stdout


def test_replay_on_a_terminal_shows_progress() -> None:
    """A terminal shows a progress bar."""
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [*KVCANON, "replay", "reference", *SHORT],
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env=os.environ | {"TERM": "xterm"},
        check=True,
    )
    os.close(theirs)
    assert done.returncode == 0
    assert b"replay reference" in os.read(ours, 1 << 16)
    os.close(ours)
