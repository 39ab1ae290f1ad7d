"""Look-ups under way: what is asked, what comes back, and who carries them.

The core decides what to look up, when to ask again and when to give up. Waiting for an answer is a
host's business: threads in a real run, a list of due moments in virtual time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from eddies.core.access.method import IndexAccess

__all__ = ["LookupExecutor", "LookupReply", "LookupRequest", "NoLookups"]


@dataclass(frozen=True, slots=True)
class LookupRequest:
    """One call of `index.lookup`. `attempt` counts from 1."""

    number: int
    relation: str
    index: IndexAccess
    keys: pa.RecordBatch
    attempt: int
    issued_ns: int


@dataclass(frozen=True, slots=True)
class LookupReply:
    """The rows of a request, or why there are none."""

    number: int
    rows: pa.RecordBatch | None = None
    error: str = ""


class LookupExecutor(Protocol):
    """Carries look-ups. One thread calls all of these."""

    def start(self, request: LookupRequest) -> None:
        """Begin; returns at once."""
        ...

    def replies(self) -> list[LookupReply]:
        """What has come back since the last call; returns at once."""
        ...

    def abandon(self, number: int) -> None:
        """Nobody waits for this request any more."""
        ...

    def next_reply_ns(self) -> int | None:
        """When the next reply comes, on the eddy's clock; None if nobody knows."""
        ...

    def wait(self, until_ns: int | None) -> None:
        """Return when there is a reply or it is `until_ns` on the eddy's clock (None: no such
        moment). Only called while some request is outstanding or `until_ns` is given.
        """
        ...

    def close(self) -> None:
        """Drop everything."""
        ...


class NoLookups:
    """For relations without indexes: nothing is ever asked."""

    def start(self, request: LookupRequest) -> None:
        raise AssertionError("no relation has an index")

    def replies(self) -> list[LookupReply]:
        return []

    def abandon(self, number: int) -> None:
        pass

    def next_reply_ns(self) -> int | None:
        return None

    def wait(self, until_ns: int | None) -> None:
        pass

    def close(self) -> None:
        pass
