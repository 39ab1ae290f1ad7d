"""The process that a keeper must not outlive: the one that starts Python workers for Spark.

A worker comes and goes with Spark's mood; its parent, Spark's daemon, stays as long as the executor, or
the driver in local mode, and goes when that has gone, however it ended. A process id is used again by
the system, so the moment at which the process began belongs to its identity, where it can be had.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

__all__ = ["Guardian", "exists"]

_BEGAN = 19  # where Linux tells it, counted after the name of the process
_ADOPTS_ORPHANS = 1  # the process that becomes parent of those whose parent has died


@dataclass(frozen=True, slots=True)
class Guardian:
    """A process, and the moment at which it began as far as the system tells."""

    process: int
    began: str | None

    @classmethod
    def of(cls, process: int) -> Guardian:
        """The process that now has this number."""
        return cls(process, _began(process))

    @classmethod
    def mine(cls) -> Guardian:
        """That of this worker: its parent, or itself if its parent has died already."""
        parent = os.getppid()
        return cls.of(os.getpid() if parent == _ADOPTS_ORPHANS else parent)

    @property
    def is_alive(self) -> bool:
        """Whether it is still there."""
        return exists(self.process) and _began(self.process) == self.began


def exists(process: int) -> bool:
    """Whether there is a process of this number."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _began(process: int) -> str | None:
    try:
        with open(f"/proc/{process}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[_BEGAN]
