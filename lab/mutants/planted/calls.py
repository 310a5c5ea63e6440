"""Marks calls while they run."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Answer = TypeVar("Answer")


class Calls:
    """Marks that a function is being called, for rules that ask on whose behalf they act."""

    def __init__(self) -> None:
        self.depth = 0

    def __bool__(self) -> bool:
        return self.depth > 0

    def during(self, function: Callable[Given, Answer]) -> Callable[Given, Answer]:
        """The function, marked while it runs."""

        @wraps(function)
        def marked(*args: Given.args, **kwargs: Given.kwargs) -> Answer:
            self.depth += 1
            try:
                return function(*args, **kwargs)
            finally:
                self.depth -= 1

        return marked
