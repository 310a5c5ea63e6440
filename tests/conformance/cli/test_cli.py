"""The command line: what it prints, where, and the code that it exits with."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kvcanon.conformance.cli import main
from kvcanon.spec.law import LAWS, RETIRED
from kvcanon.spec.laws.emission import EMISSIONS, cells, table
from kvcanon.spec.refusals import cells as refusals

SHORT = ("--limit", "25")
KVCANON = (
    sys.executable,
    "-c",
    "import sys; from kvcanon.conformance.cli import main; sys.exit(main())",
)

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
    """Work in a folder that has a module of caches."""
    (tmp_path / "their_caches.py").write_text(CACHES, encoding="utf-8")
    (tmp_path / "their_script.py").write_text("import sys\nsys.exit(0)\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "their_caches", raising=False)


def read(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    """Run a command, and return what it printed; nothing else may be on stderr."""
    assert main(arguments) == code
    printed = capsys.readouterr()
    assert not printed.err
    return printed.out


def read_json(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:  # noqa: ANN401 # JSON
    """Run a command, and return the value that it printed as JSON."""
    return json.loads(read(capsys, *arguments, "--json", code=code))


def fault(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run a command that is at fault, and return the line that says so."""
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert not printed.out
    (line,) = printed.err.splitlines()
    assert line.startswith("kvcanon: ")
    return line


def test_laws_lists_every_law(capsys: pytest.CaptureFixture[str]) -> None:
    """A law is missing from the list."""
    printed = read(capsys, "laws")
    for law in LAWS.values():
        assert re.search(rf"^  {law.law_id} +{law.level.value} ", printed, re.MULTILINE)
    assert f"{len(LAWS)} laws." in printed


def test_laws_groups_by_area(capsys: pytest.CaptureFixture[str]) -> None:
    """An area has no heading, or two."""
    printed = read(capsys, "laws")
    for area in {law.area for law in LAWS.values()}:
        assert len(re.findall(rf"^{area}: ", printed, re.MULTILINE)) == 1


def test_laws_json_has_every_law_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """The JSON leaves out what the page of a law has."""
    laws = read_json(capsys, "laws")
    assert [law["id"] for law in laws] == list(LAWS)
    assert all(law["statement"] and law["why"] and law["seen_broken"] for law in laws)


@pytest.mark.parametrize("law_id", ["RES-4", "res-4"])
def test_laws_id_prints_the_law_whole(capsys: pytest.CaptureFixture[str], law_id: str) -> None:
    """A part of a law's page is not printed."""
    printed = " ".join(read(capsys, "laws", law_id).split())
    law = LAWS["RES-4"]
    for part in (law.law_id, law.name, law.statement, law.why, law.seen_broken, law.kind.value):
        assert " ".join(part.split()) in printed
    assert all(need.value in printed for need in law.needs)


def test_laws_id_json_is_the_law(capsys: pytest.CaptureFixture[str]) -> None:
    """The JSON of one law is another's."""
    assert read_json(capsys, "laws", "RES-4")["name"] == LAWS["RES-4"].name


@pytest.mark.parametrize("law_id", RETIRED)
def test_laws_retired_id_says_what_became_of_it(
    capsys: pytest.CaptureFixture[str], law_id: str
) -> None:
    """Whoever reads an old report does not learn where a law has gone."""
    printed = " ".join(read(capsys, "laws", law_id.lower()).split())
    assert printed == f"{law_id} is retired. {RETIRED[law_id]}"
    assert read_json(capsys, "laws", law_id) == {"id": law_id, "retired": RETIRED[law_id]}


def test_laws_unknown_id_names_near_ones(capsys: pytest.CaptureFixture[str]) -> None:
    """A typing error in an id ends without a hint."""
    assert "no law RES-44; near it are RES-4, " in fault(capsys, "laws", "RES-44")
    assert "no law quux; near it are TREE-1, " in fault(capsys, "laws", "quux")


def test_laws_emissions_prints_the_table_of_events(capsys: pytest.CaptureFixture[str]) -> None:
    """The table is not printed, or not as a program wants it, or goes with a law."""
    assert read(capsys, "laws", "--emissions").splitlines() == table()
    rows = read_json(capsys, "laws", "--emissions")
    assert [tuple(row.values()) for row in rows] == [cells(row) for row in EMISSIONS]
    assert "drop RES-4 or --emissions" in fault(capsys, "laws", "RES-4", "--emissions")


def test_laws_refusals_prints_the_table_of_grounds(capsys: pytest.CaptureFixture[str]) -> None:
    """A cell of the table is not printed, or not as a program wants it, or goes with another."""
    rows = [tuple(row.values()) for row in read_json(capsys, "laws", "--refusals")]
    assert rows == refusals()
    printed = " ".join(read(capsys, "laws", "--refusals").split())
    assert all(error in printed for _, error, _ in rows)
    assert "reset CacheBusy a receipt is open; a copy in flight has one" in printed
    assert "drop RES-4 or --refusals" in fault(capsys, "laws", "RES-4", "--refusals")
    both = fault(capsys, "laws", "--emissions", "--refusals")
    assert "drop --emissions or --refusals" in both


@pytest.mark.parametrize("arguments", [("laws",), ("laws", "--json"), ("laws", "RES-4")])
def test_laws_into_a_closed_pipe_ends_in_silence(arguments: tuple[str, ...]) -> None:
    """`kvcanon laws | head -1` ends in a traceback, or says that a law is broken."""
    with subprocess.Popen(
        [*KVCANON, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


def test_replay_reports_what_happened(capsys: pytest.CaptureFixture[str]) -> None:
    """A report leaves out the seed, a count, or that nothing was judged."""
    printed = read(capsys, "replay", "reference", "--limit", "200")
    assert re.match(r"replay reference  generated chat, \d+ conversations, seed 0\n", printed)
    for row in ("cache", "requests", "prompts", "hit rate", "evicted", "backups", "load-backs"):
        assert f"\n  {row} " in printed
    for operation in ("match", "lock", "allocate", "insert", "evict", "load_back", "unlock"):
        assert f"\n  {operation} " in printed
    assert "Not judged" in printed


def test_replay_json_is_the_same_for_the_same_seed(capsys: pytest.CaptureFixture[str]) -> None:
    """A seed does not name a run."""
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
    """An option is read and then forgotten."""
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
    """Zero is taken for not given."""
    read_config = read_json(
        capsys, "replay", "reference", *SHORT, "--window", "0", "--host-tokens", "0"
    )["config"]
    assert read_config["window_tokens"] is None
    assert read_config["write_policy"] == "none"
    assert read_config["device_slots"]["swa"] == 0


def test_replay_write_policy_none_is_no_host_tier(capsys: pytest.CaptureFixture[str]) -> None:
    """The usual host pool is an error that the caller did not make."""
    result = read_json(capsys, "replay", "reference", *SHORT, "--write-policy", "none")
    assert result["config"]["host_slots"]["full"] == 0


def test_replay_unlimited_pool_evicts_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """An unlimited pool is full."""
    result = read_json(capsys, "replay", "reference", "--pool-tokens=unlimited", "--window=0")
    assert result["result"]["evicted"] == {"full": 0, "swa": 0, "mamba": 0}
    assert result["result"]["requests"] > 600


def test_replay_reads_a_trace(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A trace is not what is replayed."""
    trace = tmp_path / "some.jsonl"
    line = {"timestamp": 0, "input_length": 700, "output_length": 1, "hash_ids": [1, 2]}
    trace.write_text(f"{json.dumps(line)}\n" * 3, encoding="utf-8")
    result = read_json(capsys, "replay", "reference", "--trace", str(trace))
    assert result["workload"] == "some.jsonl"
    assert result["config"]["page_size"] == 64
    assert result["result"]["requests"] == 3
    assert result["result"]["device_hit_tokens"] == 2 * 640


def test_replay_guarded_asks_laws(capsys: pytest.CaptureFixture[str]) -> None:
    """The guard is named and does not judge."""
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
    """Two seeds judge the same steps of a trace."""
    trace = tmp_path / "some.jsonl"
    line = {"timestamp": 0, "input_length": 700, "output_length": 1, "hash_ids": [1, 2]}
    trace.write_text(f"{json.dumps(line)}\n" * 5, encoding="utf-8")
    arguments = ("replay", "reference", "--trace", str(trace), "--guard", "0.5", "--seed")
    asked = [read_json(capsys, *arguments, seed)["result"]["judgement"]["laws"] for seed in "1231"]
    assert asked[0] == asked[3]
    assert asked[0] != asked[1] or asked[0] != asked[2]


def test_replay_guarded_says_that_no_law_is_broken(capsys: pytest.CaptureFixture[str]) -> None:
    """The verdict of a guarded replay is not in its report."""
    assert "No law is broken." in read(capsys, "replay", "reference", *SHORT, "--guard", "1")


@pytest.mark.usefixtures("caches")
def test_replay_broken_law_exits_1_and_is_said_in_words(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A broken law passes, or is told by a traceback."""
    arguments = ("replay", "their_caches:Leaky", *SHORT, "--guard", "1")
    printed = read(capsys, *arguments, code=1)
    assert re.search(r"^BROKEN: .*LOCK-\d+", printed, re.MULTILINE)
    assert re.search(r"^LOCK-\d+ \w+: ", printed, re.MULTILINE)
    judgement = read_json(capsys, *arguments, code=1)["result"]["judgement"]
    assert any(law_id.startswith("LOCK-") for law_id in judgement["broken"])
    assert "Unlock(" in judgement["words"]


@pytest.mark.usefixtures("caches")
def test_replay_unguarded_does_not_see_a_broken_law(capsys: pytest.CaptureFixture[str]) -> None:
    """Without the guard a verdict is given all the same."""
    assert "Not judged" in read(capsys, "replay", "their_caches:Leaky", "--limit", "5")


def test_replay_that_judged_nothing_fails(capsys: pytest.CaptureFixture[str]) -> None:
    """A run in which nothing was judged passes."""
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
        ("their_caches:no_object", "made no cache: its NoneType lacks config, match, lock"),
        ("their_caches:Crashing", "failed: KeyError: 'nothing' (their_caches.py:"),
        ("their_caches:Refusing", "failed: ReceiptSpent: receipt "),
    ],
)
def test_replay_cache_at_fault_is_told_in_one_line(
    capsys: pytest.CaptureFixture[str], cache: str, said: str
) -> None:
    """A cache that cannot be had, or that crashes, ends in a traceback."""
    assert said in fault(capsys, "replay", cache, *SHORT)


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
    """A bad option is taken, or the line does not say which it is."""
    assert option in fault(capsys, "replay", "reference", f"{option}={value}")


def test_replay_host_pool_without_policy_names_the_option(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A host pool that nothing fills is silently dropped."""
    line = fault(capsys, "replay", "reference", "--write-policy=none", "--host-tokens=100")
    assert "--write-policy" in line


def test_replay_malformed_trace_names_file_and_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A bad line of a trace ends in a traceback."""
    trace = tmp_path / "bad.jsonl"
    trace.write_text('{"timestamp": 0}\n', encoding="utf-8")
    line = fault(capsys, "replay", "reference", "--trace", str(trace))
    assert line == f"kvcanon: {trace}:1: input_length is missing"


@pytest.mark.parametrize("arguments", [("frob",), ("bench", "frob"), ("replay",)])
def test_unknown_command_is_told_in_one_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    """A call that is no command ends in a page of usage."""
    fault(capsys, *arguments)


def test_no_command_prints_help(capsys: pytest.CaptureFixture[str]) -> None:
    """`kvcanon` alone says nothing."""
    main([])
    assert "replay" in capsys.readouterr().out


def test_piped_replay_prints_the_report_and_nothing_besides() -> None:
    """A progress bar is in the log of a pipeline."""
    done = subprocess.run(
        [*KVCANON, "replay", "reference", *SHORT], capture_output=True, check=True
    )
    assert done.stderr == b""
    assert b"\x1b" not in done.stdout


def test_replay_on_a_terminal_shows_progress() -> None:
    """Long work on a terminal looks like a hang."""
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


def test_bench_replay_measures_each_case(capsys: pytest.CaptureFixture[str]) -> None:
    """A case is missing, or the cases are not told apart."""
    arguments = ("--conversations", "5", "--page-size", "16")
    report = read_json(capsys, "bench", "replay", *arguments)
    cases = report["cases"]
    assert [case["components"] for case in cases] == ["full"] * 2 + ["full + swa"] * 2
    assert [bool(case["result"]["events"]) for case in cases] == [False, True] * 2
    assert all(case["sizes"]["page_size"] == 16 for case in cases)
    assert all(case["result"]["requests_per_second"] > 0 for case in cases)
    assert all(case["peak_bytes"] > 1 << 20 for case in cases)
    assert all(case["result"]["judgement"] is None for case in cases)
    assert [bool(case["result"]["evicted"]["swa"]) for case in cases] == [False] * 2 + [True] * 2


def test_bench_replay_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    """The table lacks a column."""
    arguments = ("--conversations", "5", "--events")
    printed = read(capsys, "bench", "replay", *arguments)
    heading = next(line for line in printed.splitlines() if line.startswith("components"))
    for column in ("req/s", "hit rate", "match us", "insert us", "evict us", "peak MiB"):
        assert column in heading
    assert len(re.findall(r"^full ", printed, re.MULTILINE)) == 2
    assert " off " not in printed


def test_bench_replay_unknown_cache_is_told_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A fault in the measuring process ends in two tracebacks."""
    assert "no cache 'nope'" in fault(capsys, "bench", "replay", "nope", "--conversations", "1")
