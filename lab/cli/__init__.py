"""`kvcanon lab`: the commands that judge the judge."""

from __future__ import annotations

from collections.abc import Sequence

from kvcanon.conformance.cli.command_line import CommandLine

COMMANDS = CommandLine(
    "kvcanon lab",
    "Judge the judge: mutants, reach, proofs, past releases and benchmarks.",
    {
        "mutants": f"{__name__}.mutants:mutants_command",
        "prove": f"{__name__}.prove:prove_command",
        "stores": f"{__name__}.stores:stores_command",
        "connectors": f"{__name__}.connectors:connectors_command",
        "faults": f"{__name__}.faults:faults_command",
        "reach": f"{__name__}.reach:reach_command",
        "corpus": f"{__name__}.corpus:corpus_command",
        "bench": f"{__name__}.bench:bench",
        "vllm": f"{__name__}.vllm:vllm_command",
        "peers": f"{__name__}.peers:peers",
    },
    supervised=("bench",),
)


def run(arguments: Sequence[str], *, copied: bool) -> int:
    """Run a command of the lab and return the exit code; see `CommandLine.run`."""
    return COMMANDS.run(arguments, copied=copied)
