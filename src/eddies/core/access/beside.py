"""What access methods keep beside the rows, as a module: its memory is counted and given back."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Beside"]


class _Owner(Protocol):
    @property
    def n_bytes_beside(self) -> int: ...

    def release(self) -> None: ...


class Beside:
    """Keys that were asked for, and which row is which."""

    name = "access"

    def __init__(self, owner: _Owner) -> None:
        self._owner = owner

    @property
    def n_bytes(self) -> int:
        return self._owner.n_bytes_beside

    def release(self) -> None:
        """Drop them."""
        self._owner.release()
