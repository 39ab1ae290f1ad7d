"""Sources that make their rows when they are read, as many as one likes.

Every row is a function of its number, so a part that is read again is the same (`GeneratedSource`).

For timing epochs, four sources have the same keys, each once, in different orders: keys come in blocks
of `BLOCK_ROWS`, and within a block every source goes through them with a stride of its own. So the rows
of a result arrive at different times, up to a block apart, and what has come must be kept. Key k passes
the query's predicates if `k % KEPT_ONE_IN` is 0; others are read and moved, but not stored.
The answer over any prefix of these sources can be computed without a join (`expected`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddies.core.expr import Expr
from eddies.errors import UnsupportedError
from eddies.sources.source import DEFAULT_BATCH_ROWS, Split

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Answer", "GeneratedSource", "Make", "QUERY", "SOURCES", "expected", "found_in"]

SOURCES = ("a", "b", "c", "d")
BLOCK_ROWS = 1 << 20
# Odd, so that they go through all of a block, and far from each other.
STRIDES = {"a": 1, "b": 386_117, "c": 741_455, "d": 154_323}
KEPT_ONE_IN = 6
SPLIT_ROWS = 1 << 16
_ROW_BYTES = 20
SCHEMA = pa.schema([("k", pa.int64()), ("kept", pa.int32()), ("v", pa.int64())])
Make = Callable[[str, int, int], pa.RecordBatch]
QUERY = """
    SELECT a.k, a.v + b.v + c.v + d.v AS total FROM a, b, c, d
    WHERE a.k = b.k AND b.k = c.k AND c.k = d.k
      AND a.kept = 0 AND b.kept = 0 AND c.kept = 0 AND d.kept = 0
"""


def keys_of(name: str, first: int, stop: int) -> npt.NDArray[np.int64]:
    """The keys of rows `first` to `stop` of a source."""
    rows = np.arange(first, stop, dtype=np.int64)
    within = (rows % BLOCK_ROWS * STRIDES[name]) % BLOCK_ROWS
    return rows - rows % BLOCK_ROWS + within


def values_of(name: str, keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The value that a source has for a key."""
    return (keys * 7 + SOURCES.index(name)) % 1000


def key_rows(name: str, first: int, stop: int) -> pa.RecordBatch:
    """Rows `first` to `stop` of one of the four sources."""
    keys = keys_of(name, first, stop)
    kept = (keys % KEPT_ONE_IN).astype(np.int32)
    return pa.record_batch(
        [pa.array(keys), pa.array(kept), pa.array(values_of(name, keys))], SCHEMA
    )


@dataclass(frozen=True, slots=True)
class GeneratedSplit:
    """Rows of a source from `first` on. `make` gives rows from one number to another."""

    make: Make
    name: str
    first: int
    n_rows: int

    @property
    def n_bytes(self) -> int:
        return self.n_rows * _ROW_BYTES

    def read(
        self,
        columns: Sequence[str],
        where: tuple[Expr, ...] = (),
        batch_rows: int = DEFAULT_BATCH_ROWS,
    ) -> Iterator[pa.RecordBatch]:
        """See `Split.read`; no row is left out."""
        end = self.first + self.n_rows
        for first in range(self.first, end, batch_rows):
            yield self.make(self.name, first, min(first + batch_rows, end)).select(list(columns))


@dataclass(frozen=True, slots=True)
class GeneratedSource:
    """A source with `n_rows` rows. `make` is a function of a module, so that tasks can import it."""

    name: str
    n_rows: int
    make: Make = key_rows

    @property
    def label(self) -> str:
        return f"generated {self.name}"

    @property
    def schema(self) -> pa.Schema:
        return self.make(self.name, 0, 0).schema

    @property
    def n_bytes(self) -> int:
        return self.n_rows * _ROW_BYTES

    @property
    def is_direct(self) -> bool:
        return True

    def splits(self, where: tuple[Expr, ...] = ()) -> list[Split]:
        return [
            GeneratedSplit(self.make, self.name, first, min(SPLIT_ROWS, self.n_rows - first))
            for first in range(0, self.n_rows, SPLIT_ROWS)
        ]

    def dataframe(self, spark: SparkSession) -> DataFrame:
        raise UnsupportedError("generated rows are read by tasks, not by Spark")


@dataclass(frozen=True, slots=True)
class Answer:
    """How many results, and the sum of their keys and totals."""

    n_rows: int
    total: int

    def __add__(self, other: Answer) -> Answer:
        return Answer(self.n_rows + other.n_rows, self.total + other.total)


def found_in(results: pa.RecordBatch) -> Answer:
    """Of some results of `QUERY`."""
    keys, totals = (results.column(name).to_numpy() for name in ("k", "total"))
    return Answer(results.num_rows, int(keys.sum()) + int(totals.sum()))


def expected(n_rows: Mapping[str, int]) -> Answer:
    """Of `QUERY` over the first rows of every source, so many of each."""
    n_keys = -(-max(n_rows.values()) // BLOCK_ROWS) * BLOCK_ROWS
    everywhere = np.ones(n_keys, dtype=np.bool_)
    everywhere[np.arange(n_keys) % KEPT_ONE_IN != 0] = False
    for name in SOURCES:
        here = np.zeros(n_keys, dtype=np.bool_)
        here[keys_of(name, 0, n_rows[name])] = True
        everywhere &= here
    keys = np.flatnonzero(everywhere).astype(np.int64)
    totals = sum(int(values_of(name, keys).sum()) for name in SOURCES)
    return Answer(len(keys), int(keys.sum()) + totals)
