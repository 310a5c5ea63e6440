"""Runs play to every server, Rust's first, and say what was wrong, missing or not found."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from attrs import evolve

from kvcanon.conformance.errors import UsageError
from kvcanon.lab.releases.catalogue import release_named
from kvcanon.lab.releases.environment import MANIFEST, Peer
from kvcanon.lab.servers import __main__ as command
from kvcanon.lab.servers import kept_runs, runs, server_environment
from kvcanon.lab.servers.core_faults import FAULTS
from kvcanon.lab.servers.kept_runs import PortionOverError
from kvcanon.lab.servers.runs import EngineRuns, run_faults
from kvcanon.lab.servers.script import EngineScript, ScriptedRequest, ScriptRound, SendOrder
from kvcanon.lab.servers.script_rounds import SMALL
from kvcanon.lab.servers.server_environment import RELEASE, STAMP, make_server_environment
from kvcanon.lab.servers.server_setup import (
    CORES,
    NO_CACHE,
    Ports,
    ServerSetup,
    arguments,
    small_setups,
    variables,
    whole_setups,
)
from kvcanon.lab.servers.transcript import EngineReply, RoundTranscript, Transcript
from kvcanon.lab.servers.verdict import CORE_CLASSES, reference_core

REQUESTS = tuple(
    ScriptedRequest(name, (7, 8, 9, 10, 11), (1, 2), abort_after=int(name == "third"))
    for name in ("first", "second", "third")
)
SCRIPT = EngineScript("sliding", 0, 4, (ScriptRound("chats", SendOrder.ONE_BY_ONE, REQUESTS),))


def answer(setup: ServerSetup) -> Transcript:
    """What a right server answers."""
    cached = setup.core != NO_CACHE
    hit = EngineReply("second", (1, 2), device_tokens=4 * cached, retractions=1)
    replies = (
        EngineReply("first", (1, 2)),
        evolve(hit, host_tokens=hit.device_tokens, device_tokens=0) if setup.host else hit,
        EngineReply("third", (1,), device_tokens=4 * cached, ending="abort"),
    )
    return Transcript(
        setup.name, CORE_CLASSES.get(setup.core, ""), (RoundTranscript("chats", replies, {}, 9),)
    )


class Servers(list[ServerSetup]):
    """The servers that were played to; each answers right, but for what a test changes."""

    change: Callable[[ServerSetup, Transcript], Transcript] = staticmethod(lambda _, told: told)

    def play(self, _script: EngineScript, setup: ServerSetup, *_paths: Path) -> Transcript:
        """Play to a server."""
        self.append(setup)
        return self.change(setup, answer(setup))


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Servers:
    """The servers that were played to."""
    found = Servers()
    monkeypatch.setattr(runs, "play", found.play)
    monkeypatch.setattr(runs, "make_model", lambda *_: SimpleNamespace(save_pretrained=id))
    monkeypatch.setattr(runs, "draw_script", lambda *_: SCRIPT)
    return found


def with_reply(told: Transcript, at: int, **changes: Any) -> Transcript:  # noqa: ANN401 # Fields.
    """A transcript in which one reply is another."""
    (chats,) = told.rounds
    replies = list(chats.replies)
    replies[at] = evolve(replies[at], **changes)
    return evolve(told, rounds=(evolve(chats, replies=tuple(replies)),))


def status(folder: Path, *given: str) -> int:
    """Run the command in the environment of servers."""
    return command.run(command.arguments(given), folder)


def test_every_core_serves_in_every_way(
    played: Servers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both models, all policies, one and two ranks; in each way references come first."""
    assert status(tmp_path) == 0
    assert len(played) == len(set(played)) == len(whole_setups(CORES)) == 50
    for setup in played:
        if reference := reference_core(setup.core):
            assert played.index(evolve(setup, core=reference)) < played.index(setup)
    assert capsys.readouterr().out.endswith("50 servers, 0 with findings\n")


def fewer_hits(setup: ServerSetup, told: Transcript) -> Transcript:
    """A core of ours with fewer cached tokens than Rust's."""
    return with_reply(told, 1, host_tokens=0) if setup.core == "kvcanon" else told


def nothing_evicted(_setup: ServerSetup, told: Transcript) -> Transcript:
    """Servers that evict nothing prove little, though nothing is wrong with them."""
    return evolve(told, rounds=(evolve(told.rounds[0], removed=0),))


def no_start(setup: ServerSetup, told: Transcript) -> Transcript:
    """A core of ours with which no server starts; the others are played to all the same."""
    if setup.core == "kvcanon":
        raise UsageError("the server ended at its start: ValueError: --some-flag")
    return told


OURS = "  sliding-kvcanon-write_through-tp1: "


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (fewer_hits, (f"{OURS}wrong counts: second:", "5 servers, 1 with findings\n")),
        (nothing_evicted, ("NOT SHOWN: sliding-rust-write_through-tp1 did not evict", "")),
        (
            no_start,
            (
                f"{OURS}server ended: the server ended at its start: ValueError: --some-flag\n",
                "5 servers, 1 with findings\n",
            ),
        ),
    ],
)
def test_what_is_wrong_is_printed_and_fails(
    played: Servers,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[ServerSetup, Transcript], Transcript],
    words: tuple[str, str],
) -> None:
    """Findings, what is not shown and what does not start fail the run, each in words."""
    played.change = change
    assert status(tmp_path, "--small") == 1
    printed = capsys.readouterr().out
    assert words[0] in printed
    assert printed.endswith(words[1])


def test_only_that_leaves_no_server_is_refused(tmp_path: Path) -> None:
    """A typing error does not pass for a run."""
    with pytest.raises(UsageError, match="--only 'tp3' leaves no server of 50"):
        status(tmp_path, "--only", "tp3")
    with pytest.raises(UsageError, match="--only 'tp3' leaves no fault of 12"):
        status(tmp_path, "--faults", "rust", "--only", "tp3")


def test_only_some_faults_can_be_planted(played: Servers, tmp_path: Path) -> None:
    """With the sound core beside them."""
    assert status(tmp_path, "--faults", "rust", "--only", "page-off") == 1
    faults = [each.fault for each in played]
    assert faults == ["", "load-back-one-page-off", "backup-one-page-off"]


def test_faults_that_are_not_found_are_named(played: Servers, tmp_path: Path) -> None:
    """A fault is missed if nothing is found but what is found without it."""
    said: list[str] = []
    assert run_faults(EngineRuns(tmp_path, 0, SMALL, said.append), "kvcanon") == list(FAULTS)

    def change(setup: ServerSetup, told: Transcript) -> Transcript:
        if setup.core != "kvcanon":
            return told
        usual = evolve(told, event_faults=("batch 3 came where 2 was due",))
        found = setup.fault not in {"", "removals-lost"}
        return with_reply(usual, 0, tokens=(2, 2)) if found else usual

    played.change = change
    said.clear()
    assert run_faults(EngineRuns(tmp_path, 0, SMALL, said.append), "kvcanon") == ["removals-lost"]
    assert "  lock-forgotten: 1 wrong tokens" in said
    assert "    first: token 0 is (2,), transformers says (1,)" in said
    assert "  removals-lost: NOT FOUND" in said


def test_small_run_has_no_cache_and_every_core() -> None:
    """Tokens are compared with no cache, too."""
    assert [each.core for each in small_setups(CORES)] == [NO_CACHE, *CORES]


def test_servers_listen_on_the_loopback_with_all_checks_on() -> None:
    """Flags and variables of a server say what it is for."""
    setup = ServerSetup("sliding", "kvcanon", "write_back", 2, "namespace-ignored")
    flags = arguments(setup, Path("model"), Ports(1, 2, 3))
    assert flags[flags.index("--host") + 1] == "127.0.0.1"
    assert flags[flags.index("--tp-size") + 1] == "2"
    assert flags[flags.index("--hicache-write-policy") + 1] == "write_back"
    assert "--disable-radix-cache" not in flags
    own = variables(setup, Path("plugins"), {"PYTHONPATH": "theirs", "KEPT": "yes"})
    assert own["PYTHONPATH"] == "plugins:theirs"
    assert own["SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND"] == "kvcanon"
    assert own["SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_BUSY"] == "1"
    assert own["SGLANG_ENABLE_RANK_CONSENSUS_CHECKER"] == "1"
    assert (own["SGLANG_CPU_OMP_THREADS_BIND"], own["KEPT"]) == ("0|1", "yes")
    bare = ServerSetup("full", NO_CACHE)
    far = evolve(setup, device="cuda")
    flags = arguments(far, Path("model"), Ports(1, 2, 3))
    assert flags[flags.index("--device") + 1] == "cuda"
    assert far.name == "sliding-kvcanon-write_back-tp2-cuda-namespace-ignored"
    assert {"--disable-cuda-graph", "--sampling-backend"} < set(flags)
    own = variables(far, Path("plugins"), {})
    assert own["SGLANG_FORCE_FUSED_OP_BACKEND"] == "torch"
    assert "SGLANG_USE_CPU_ENGINE" not in own
    assert "--disable-radix-cache" in arguments(bare, Path("model"), Ports(1, 2, 3))
    assert "--kv-events-config" not in arguments(bare, Path("model"), Ports(1, 2, 3))


def test_a_device_is_for_the_script(tmp_path: Path) -> None:
    """Every other run says so, and starts nothing."""
    for other in (["--refusals"], ["--faults", "rust"], ["--kills", "rust"], ["--probe", "rust"]):
        given = command.arguments(["--device", "cuda", *other])
        with pytest.raises(UsageError, match="--device cuda is for the script alone"):
            command.run(given, tmp_path)


def test_environment_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages of servers are installed into the release's environment, and not again."""
    folder = tmp_path / release_named(RELEASE).folder
    folder.mkdir()
    (folder / MANIFEST).write_text("{}", encoding="utf-8")
    monkeypatch.setattr(
        server_environment,
        "make",
        lambda release, _into, _run: Peer(release, folder),
    )
    commands: list[list[str]] = []
    for _ in range(2):
        make_server_environment(tmp_path, lambda command, _: commands.append(list(command)))
    assert [" ".join(command[1:3]) for command in commands] == ["-m pip", "-W ignore"]
    assert server_environment.server_environment(tmp_path).folder == folder
    (folder / STAMP).unlink()
    with pytest.raises(UsageError, match=r"make it with `python -m .* --environment --peers"):
        server_environment.server_environment(tmp_path)


def portion(folder: Path, minutes: str = "4", *more: str) -> int:
    """Play a portion of the whole run."""
    return status(folder, "--small", "--into", str(folder), "--portion", minutes, *more)


def test_run_in_portions_comes_to_the_same(
    played: Servers,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No server is played to twice, and the last portion judges those of all portions."""
    clock = iter(range(0, 60 * 1000, 60))  # A minute a look: two servers a portion.
    monkeypatch.setattr(kept_runs, "monotonic", lambda: next(clock))
    for done in (2, 4):
        with pytest.raises(PortionOverError):
            portion(tmp_path, "2")
        assert len(played) == done
    capsys.readouterr()
    assert portion(tmp_path, "2") == 0
    assert len(played) == len(set(played)) == 5
    lines = capsys.readouterr().out.splitlines()
    assert ["played before" in line for line in lines] == [at < 4 for at in range(len(lines))]
    assert lines[-1] == "5 servers, 0 with findings"


def test_what_an_earlier_portion_found_still_fails(
    played: Servers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its transcripts are judged again, beside the same references."""

    def change(setup: ServerSetup, told: Transcript) -> Transcript:
        return evolve(told, event_faults=("a gap",)) if setup.core == "kvcanon" else told

    played.change = change
    for _ in range(2):
        assert portion(tmp_path) == 1
        assert capsys.readouterr().out.endswith("5 servers, 1 with findings\n")


def test_portions_of_different_runs_are_not_mixed(
    played: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another seed, another script, other code, or a run that was not in portions."""
    assert portion(tmp_path) == 0
    with pytest.raises(UsageError, match="of other code, of another seed or of another script"):
        portion(tmp_path, "4", "--seed", "1")
    monkeypatch.setattr(kept_runs, "_digest", lambda: "other")
    with pytest.raises(UsageError, match="name an empty folder"):
        portion(tmp_path)
    (tmp_path / kept_runs.MARK).unlink()
    with pytest.raises(UsageError, match="files of a run without --portion"):
        portion(tmp_path)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--portion", "4"], "needs --into"),
        (["--portion", "0", "--into", "x"], "leaves no time"),
        (["--portion", "nan", "--into", "x"], "leaves no time"),
        (["--portion", "4", "--into", "x", "--probe", "rust"], "a probe is played as a whole"),
    ],
)
def test_portion_that_cannot_go_on_is_refused(tmp_path: Path, given: list[str], words: str) -> None:
    """Before a server is started."""
    with pytest.raises(UsageError, match=words):
        status(tmp_path, *given)


def test_portion_that_is_over_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit status differs from those of a run that found something, or could not begin."""

    def run(*_given: object) -> int:
        raise PortionOverError

    monkeypatch.setattr(command, "find_spec", lambda _: True)
    monkeypatch.setattr(command, "run", run)
    monkeypatch.setattr(sys, "argv", ["serving", "--into", str(tmp_path)])
    assert command.main() == 3
    assert capsys.readouterr().out == "this portion is over; the same command goes on\n"


def test_environment_alone_is_made_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is played, also where SGLang is not installed yet."""
    made = Peer(release_named(RELEASE), tmp_path / "made")
    monkeypatch.setattr(command, "make_server_environment", lambda folder, _: made)
    given = ["serving", "--environment", "--peers", str(tmp_path)]
    monkeypatch.setattr("sys.argv", given)
    assert command.main() == 0
    assert capsys.readouterr().out == f"servers run in {made.folder}\n"


@pytest.mark.parametrize(
    ("option", "right"),
    [
        ("--refusals", "every start was refused"),
        ("--kills=rust", "every server started again, and answered right"),
    ],
)
def test_starts_and_kills_fail_by_name(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    option: str,
    right: str,
) -> None:
    """What was wrong is printed, and the status is 1."""
    function = "run_" + option.strip("-").partition("=")[0]
    monkeypatch.setattr(command, function, lambda *_: [])
    assert status(tmp_path, option) == 0
    assert capsys.readouterr().out == f"{right}\n"
    monkeypatch.setattr(command, function, lambda *_: ["older-sglang"])
    assert status(tmp_path, option) == 1
    assert "older-sglang" in capsys.readouterr().out
