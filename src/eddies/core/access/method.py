"""Access methods of a relation, as facts: which scans it has, and which indexes (SteMs, section 2).

A *scan* delivers the whole relation, then ends. An *index* delivers, for values of its *bind columns*,
every row that has those values: it must be given values before it gives rows. A relation may have any
number of both, from one place or from several that hold the same rows (mirrors). They compete, and
whatever they deliver is built into the one SteM of the relation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from eddies.errors import OptionError

__all__ = ["Access", "IndexAccess", "Lookup"]

Lookup = Callable[[pa.RecordBatch], pa.RecordBatch | pa.Table]
"""Gets keys (one column for each bind column, no NULL, no key twice) and returns, in any order, every
row of the source that has one of them, with at least the columns that the query reads. It may raise
and is then asked again. It runs on a thread of its own.
"""


@dataclass(frozen=True, slots=True)
class IndexAccess:
    """One index.

    keys_per_lookup   most keys in one call of `lookup`.
    concurrency       calls that may be outstanding at once.
    timeout_s         after which a call counts as failed; its late answer is ignored.
    retries           further attempts for a key after the first failed.
    backoff_s         pause before the first retry; doubles with each.
    """

    name: str
    bind: tuple[str, ...]
    lookup: Lookup
    keys_per_lookup: int = 1
    concurrency: int = 8
    timeout_s: float = 30.0
    retries: int = 3
    backoff_s: float = 0.1

    def __post_init__(self) -> None:
        if not self.bind:
            raise OptionError(f"index {self.name!r} needs at least one bind column")
        if len(set(self.bind)) < len(self.bind):
            raise OptionError(f"index {self.name!r} names a bind column twice: {self.bind}")
        for name, least in (("keys_per_lookup", 1), ("concurrency", 1), ("retries", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise OptionError(
                    f"{name} of index {self.name!r} must be a whole number of at least {least}, "
                    f"not {value!r}"
                )
        if not self.timeout_s > 0 or not self.backoff_s >= 0:
            raise OptionError(
                f"index {self.name!r} needs timeout_s above 0 and backoff_s of at least 0, "
                f"not {self.timeout_s!r} and {self.backoff_s!r}"
            )


@dataclass(frozen=True, slots=True)
class Access:
    """All access methods of one relation. Without scans it can be reached through indexes only.

    `key` names columns that identify a row, if that is known: then rows that come twice are told by
    their key, and rows that differ under the same key are reported. Without it, rows are compared
    whole.
    """

    scans: tuple[str, ...] = ("scan",)
    indexes: tuple[IndexAccess, ...] = ()
    key: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = [*self.scans, *(index.name for index in self.indexes)]
        if not names:
            raise OptionError("a relation needs at least one access method: a scan or an index")
        for name in names:
            if names.count(name) > 1:
                raise OptionError(f"two access methods are named {name!r}")

    @property
    def bind_sets(self) -> tuple[tuple[str, ...], ...]:
        """The different sets of bind columns, each in the order of its first index."""
        found: dict[frozenset[str], tuple[str, ...]] = {}
        for index in self.indexes:
            found.setdefault(frozenset(index.bind), index.bind)
        return tuple(found.values())

    @property
    def may_repeat(self) -> bool:
        """Whether a row can arrive twice. Indexes with the same bind columns share their keys, so
        each key is answered by one of them.
        """
        return len(self.scans) + len(self.bind_sets) > 1
