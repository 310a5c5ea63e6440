"""What has sockets, threads or files, and gives them back at the end of a `with`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """Closes itself at the end of a `with`, also where that ends by an error."""

    @abstractmethod
    def close(self) -> None:
        """Give back what it has. Does nothing the second time."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
