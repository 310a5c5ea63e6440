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
from paths import ROOT

SHORT = ("--limit", "25")

CACHES = '''
from kvcanon.conformance import Adapter
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


@pytest.fixture
def trace(tmp_path: Path) -> str:
    """A trace of five requests for the same 700 tokens."""
    path = tmp_path / "some.jsonl"
    line = {"timestamp": 0, "input_length": 700, "output_length": 1, "hash_ids": [1, 2]}
    path.write_text(f"{json.dumps(line)}\n" * 5, encoding="utf-8")
    return str(path)


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
    timed = {"operations", "processor_seconds", "cache_seconds", "requests_per_second"}
    for each in (first, second, other):
        assert each.pop("run")["machine"]["cores"] >= 1
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


@pytest.mark.parametrize("options", ["--window=0 --host-tokens=0", "--write-policy=none"])
def test_replay_without_a_host_tier_has_none(
    capsys: pytest.CaptureFixture[str], options: str
) -> None:
    """Zero switches window and host tier off, and so does the write policy none."""
    config = read_json(capsys, "replay", "reference", *SHORT, *options.split())["config"]
    assert config["write_policy"] == "none"
    assert config["host_slots"]["full"] == 0
    if "--window" in options:
        assert config["window_tokens"] is None
        assert config["device_slots"]["swa"] == 0


def test_replay_unlimited_pool_evicts_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """With an unlimited pool nothing is evicted."""
    result = read_json(capsys, "replay", "reference", "--pool-tokens=unlimited", "--window=0")
    assert result["result"]["evicted"] == {"full": 0, "swa": 0, "mamba": 0}
    assert result["result"]["requests"] > 600


def test_replay_reads_a_trace(capsys: pytest.CaptureFixture[str], trace: str) -> None:
    """The requests of a trace are replayed."""
    result = read_json(capsys, "replay", "reference", "--trace", trace)
    assert result["workload"] == "some.jsonl"
    assert result["config"]["page_size"] == 64
    assert result["result"]["requests"] == 5
    assert result["result"]["device_hit_tokens"] == 4 * 640


def test_replay_guarded_checks_laws(capsys: pytest.CaptureFixture[str]) -> None:
    """With --guard 1 every step is judged."""
    judgement = read_json(capsys, "replay", "reference", *SHORT, "--guard", "1")["result"][
        "judgement"
    ]
    assert judgement["broken"] == []
    assert judgement["judged"] == judgement["steps"] > 100
    assert judgement["laws"].keys() <= LAWS.keys()
    assert sum(judgement["laws"].values()) > 1000
    assert "No law is broken." in read(capsys, "replay", "reference", *SHORT, "--guard", "1")


def test_replay_seed_draws_the_sample_of_the_guard(
    capsys: pytest.CaptureFixture[str], trace: str
) -> None:
    """The seed decides which steps are judged."""
    arguments = ("replay", "reference", "--trace", trace, "--guard", "0.5", "--seed")
    exercised = [
        read_json(capsys, *arguments, seed)["result"]["judgement"]["laws"] for seed in "1231"
    ]
    assert exercised[0] == exercised[3]
    assert exercised[0] != exercised[1] or exercised[0] != exercised[2]


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


@pytest.mark.usefixtures("caches")
@pytest.mark.parametrize(
    ("cache", "said"),
    [
        ("optimised", "no cache 'optimised'; near it is optimized"),
        ("their_caches", "their_caches is a module; name the adapter or the factory in it"),
        (
            "their_caches:Adapter",
            "Adapter is the class that their_caches imports; name your adapter, as their_caches:",
        ),
        (":factory", "no cache ':factory'"),
        (str(ROOT / "README.md"), "README.md is no cache and no Python file; name a cache"),
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
    "call",
    [
        "--page-size=0",
        "--page-size=many",
        "--pool-tokens=-1",
        "--pool-tokens=lots",
        "--pool-tokens=7",
        "--host-tokens=-1",
        "--window=-1",
        "--swa-tokens=-1",
        "--mamba-states=-1",
        "--conversations=0",
        "--limit=0",
        "--guard=1.5",
        "--guard=nan",
        "--seed=x",
        "--write-policy=sometimes",
        "--eviction-policy=random",
        "--trace=/no/such/trace.jsonl",
        "--trace=/",
        "--bogus=1",
        "--write-policy=none --host-tokens=100",
    ],
)
def test_replay_option_at_fault_is_named(capsys: pytest.CaptureFixture[str], call: str) -> None:
    """A wrong option is named, and so is a policy that a host pool lacks."""
    option = call.partition("=")[0]
    assert option in usage_error(capsys, "replay", "reference", *call.split())


def test_replay_that_judged_nothing_fails(capsys: pytest.CaptureFixture[str]) -> None:
    """A guarded replay that judged nothing exits with 2."""
    call = ("replay", "reference", "--limit", "1", "--guard", "0.0001")
    assert main(call) == 2
    assert "nothing was judged" in capsys.readouterr().err


def test_replay_malformed_trace_names_file_and_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A malformed trace is refused, with file and line."""
    trace = tmp_path / "bad.jsonl"
    trace.write_text('{"timestamp": 0, "hash_ids": [1]}\n', encoding="utf-8")
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


# Several sizes and policies.


def test_several_sizes_and_policies_are_compared(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """There is a row for each combination, and a larger pool hits no less of the same prompts."""
    curve = tmp_path / "curve.svg"
    given = ("--conversations=12", "--window=0", "--host-tokens=0", "--eviction-policy=lru,fifo")
    sizes = "--pool-tokens=512,2048,unlimited"
    printed = read(capsys, "replay", "reference", *given, sizes, "--plot", str(curve))
    rows = re.findall(r"^ +([\d,]+|unlimited) +(0\.\d{4}) ", printed, re.MULTILINE)
    assert [size for size, _ in rows] == ["512", "2,048", "unlimited"] * 2
    rates = [float(rate) for _, rate in rows[:3]]
    assert rates == sorted(rates)
    assert rates[0] < rates[-1]
    assert re.findall(r"^ +(lru|fifo)$", printed, re.MULTILINE) == ["lru", "fifo"]
    drawn = curve.read_text("utf-8")
    assert drawn.count("</svg>") == 1


@pytest.mark.parametrize("size", ["unlimited", "4096", "4096,unlimited"])
def test_prompts_below_a_page_need_a_smaller_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, size: str
) -> None:
    """No prompt has a page, so that no cache could hit: one line says so, and the mend."""
    trace = tmp_path / "short.jsonl"
    trace.write_text('{"token_ids": [1, 2, 3]}\n{"token_ids": [1, 2, 3, 4, 5]}\n', "utf-8")
    given = ("replay", "reference", "--trace", str(trace), "--pool-tokens", size)
    said = usage_error(capsys, *given)
    assert "'--page-size': the longest prompt has 5 tokens, which hold no page of 64." in said
    assert "failed" not in said
    read(capsys, *given, "--page-size=2")


def test_a_comparison_is_that_of_each_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """A row of a comparison is the replay with these options alone."""
    given = ("replay", "reference", "--conversations=8")
    first, second = read_json(capsys, *given, "--pool-tokens=1024,4096")
    for size, compared in (("1024", first), ("4096", second)):
        alone = read_json(capsys, *given, f"--pool-tokens={size}")
        for name in ("device_hit_tokens", "host_hit_tokens", "evicted", "events", "requests"):
            assert compared["result"][name] == alone["result"][name]
        assert compared["config"] == alone["config"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--pool-tokens=512,1024 --guard=1", "give one value of each option"),
        ("--pool-tokens=512,1024 --html=page.html", "give one value of each option"),
        ("--plot=curve.svg", "give several sizes to --pool-tokens"),
        ("--pool-tokens=512,,1024", "'' is neither a whole number nor 'unlimited'"),
        ("--eviction-policy=lru,best", "--eviction-policy has no 'best'; choose of lru"),
        ("--write-policy=often", "--write-policy has no 'often'"),
        ("--block-tokens=16", "say how --trace is read; give it"),
        ("--tokenizer=words", "say how --trace is read; give it"),
        ("--pool-tokens=512,1024 --plot=curve.doc", "--plot"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    options: str,
    said: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each is one line that names the option and the mend."""
    monkeypatch.chdir(tmp_path)
    given = ("replay", "reference", "--conversations=2", *options.split())
    assert main(given) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
