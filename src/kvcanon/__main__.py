"""The command `kvcanon`, also `python -m kvcanon`: the suite's command line, where installed."""

import sys
from importlib import import_module

from kvcanon.commit import version_line

USAGE_ERROR = 2
INTERRUPTED = 130
"""As in `kvcanon.conformance.cli.command_line`, which may be what cannot be imported."""


def main() -> int:
    """Run the command line on `sys.argv`, and return its exit code."""
    if sys.argv[1:] == ["--version"]:
        # All else that the command line imports takes most of a second.
        sys.stdout.write(f"{version_line()}\n")
        return 0
    try:
        cli = import_module("kvcanon.conformance.cli")
        cli.COMMANDS.load(sys.argv[1:])
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "kvcanon":
            raise
        sys.stderr.write(
            f"kvcanon: the command line needs {error.name}, which is not installed; "
            "run `pip install 'kvcanon[suite]'`\n"
        )
        return USAGE_ERROR
    except KeyboardInterrupt:
        # Imports take most of a second.
        return INTERRUPTED
    return int(cli.main())


if __name__ == "__main__":
    sys.exit(main())
