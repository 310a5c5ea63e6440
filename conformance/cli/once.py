"""Commands that refuse an option given twice; a parser would keep the last and drop the first."""

from __future__ import annotations

from collections import Counter

import typer
from typer.core import TyperCommand, TyperOption

from kvcanon.conformance.errors import UsageError


class OnceCommand(TyperCommand):
    """A command whose options with one value are given once at most."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Parse as Typer does. Raises: UsageError, if an option is given twice."""
        _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        for option, times in Counter(given).items():
            if not isinstance(option, TyperOption) or option.multiple or option.is_flag:
                continue
            if times > 1:
                raise UsageError(
                    f"{option.opts[0]} is given {times} times; give it once"
                    + (", with commas" if (option.metavar or "").endswith(",...") else "")
                )
        return super().parse_args(ctx, args)
