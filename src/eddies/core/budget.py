"""How much memory state holds, and the promise not to exceed it where nothing can be put on disk.

A mode that spills keeps within the budget itself. The others cannot, so they are looked at after what
makes state grow, and an eddy that holds too much fails with the sizes of its modules.
"""

from __future__ import annotations

from collections.abc import Sequence

from eddies.core.modules.stem import SteM
from eddies.core.router import Router
from eddies.core.state_modes import StateMode
from eddies.errors import MemoryBudgetError

__all__ = ["Budget"]


class Budget:
    """Of one eddy; without `limit_bytes` it only reports."""

    def __init__(self, limit_bytes: int | None, stems: Sequence[SteM], mode: StateMode) -> None:
        self._limit_bytes = None if mode.spills else limit_bytes
        self._stems = stems
        self._mode = mode

    @property
    def is_limited(self) -> bool:
        """Whether there is anything to check."""
        return self._limit_bytes is not None

    def sizes(self) -> dict[str, int]:
        """Bytes of state by module. While a thread makes an index, waits for it."""
        stems = {}
        for stem in self._stems:
            with stem.lock:
                stems[stem.name] = stem.n_bytes
        return {m.name: m.n_bytes for m in self._mode.modules if m.name not in stems} | stems

    def check(self) -> None:
        """Raise `MemoryBudgetError` if state holds more than it may."""
        limit = self._limit_bytes
        if limit is None:
            return
        size_by_module = self.sizes()
        held = sum(size_by_module.values())
        if held > limit:
            sizes = ", ".join(f"{name} {size:,}" for name, size in size_by_module.items())
            raise MemoryBudgetError(
                f"state needs {held:,} bytes, Options(memory=...) allows {limit:,} ({sizes}); "
                "allow more memory or split the query into more cells"
            )

    def check_growth(self, router: Router) -> None:
        """The same at a safe point: indexes are made when a probe needs them, after building."""
        if router.has_indexed or self._mode.stores_on_the_way:
            router.has_indexed = False
            self.check()
