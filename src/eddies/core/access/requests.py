"""Look-ups under way: what is asked, what comes back, and who carries them.

The core decides what to look up, when to ask again and when to give up. Waiting for an answer is a
host's business: threads in a real run, a list of due moments in virtual time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

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
    """The rows of a request, or why there are none. `began_ns`: when the call began, if not at once."""

    number: int
    rows: pa.RecordBatch | None = None
    error: str = ""
    began_ns: int | None = None


class LookupExecutor(Protocol):
    """Carries look-ups. One thread calls all of these."""

    @property
    def keeps_at_hand(self) -> bool:
        """Whether it may be given more calls than `concurrency` of their index, and begins the next of
        them at the moment at which one returns.
        """
        ...

    def start(self, request: LookupRequest) -> None:
        """Begin, or keep at hand; returns at once."""
        ...

    def began_ns(self, request: LookupRequest) -> int | None:
        """When the call began, on the eddy's clock; None: it has not yet."""
        ...

    def recall(self, relation: str, index: IndexAccess) -> list[int]:
        """Give back the calls at hand that have not begun."""
        ...

    def replies(self) -> list[LookupReply]:
        """What has come back since the last call; returns at once."""
        ...

    def abandon(self, request: LookupRequest) -> None:
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

    keeps_at_hand: ClassVar[bool] = False

    def start(self, request: LookupRequest) -> None:
        raise AssertionError("no relation has an index")

    def began_ns(self, request: LookupRequest) -> int | None:
        raise AssertionError("no relation has an index")

    def recall(self, relation: str, index: IndexAccess) -> list[int]:
        return []

    def replies(self) -> list[LookupReply]:
        return []

    def abandon(self, request: LookupRequest) -> None:
        pass

    def next_reply_ns(self) -> int | None:
        return None

    def wait(self, until_ns: int | None) -> None:
        pass

    def close(self) -> None:
        pass
