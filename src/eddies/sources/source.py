"""Re-readable sources: what `eddies.read` returns, and what a Spark task reads its part of.

A `Source` is a table that lies somewhere and can be read again: files, mostly. It is described by
facts that are small and can be sent anywhere (paths, sizes, a schema), and it falls into `Split`s:
disjoint parts that together are the whole table. A host hands splits to its tasks, and each task
reads its own, columnar, with only the columns and, as far as possible, only the rows it needs.
Nothing passes through the driver.

Invariants, for every source:

* *Disjoint and complete.* Every row is in exactly one split of `splits()`.
* *Never lose a row that might pass.* `where` lists predicates that every wanted row fulfils. A reader
  may use them to skip splits, parts of splits, or rows; it may never skip a row for which all of them
  are true, and need not skip any other: whoever reads checks again. NULL and NaN follow
  `eddies.core.functions`.
* *One schema.* Every split delivers the types of `Source.schema`, which are those Spark gives for
  the same files (see `eddies.sources.delivered`), whatever single files hold.
* *Nothing is read early.* Making a source lists its files and reads what describes them (footers, or
  a sample where a format has no schema), so that errors come early. Rows are read by `Split.read`.

The source's name in the columns of `where` does not matter: there is one table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, TypeGuard

import pyarrow as pa

from eddies.core.expr import Expr

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["DEFAULT_BATCH_ROWS", "Source", "Split", "is_source"]

DEFAULT_BATCH_ROWS = 1 << 20


class Split(Protocol):
    """One part of a source. Small, and can be pickled: it holds no rows and no open file."""

    @property
    def n_rows(self) -> int | None:
        """How many rows it has before any predicate, if that is known."""
        ...

    @property
    def n_bytes(self) -> int | None:
        """Roughly what all its columns take in memory, if that is known."""
        ...

    def read(
        self,
        columns: Sequence[str],
        where: tuple[Expr, ...] = (),
        batch_rows: int = DEFAULT_BATCH_ROWS,
    ) -> Iterator[pa.RecordBatch]:
        """Batches of at most `batch_rows` rows with exactly `columns`, in that order.

        Batches are as large as they come without copying. Without columns, batches still count rows.
        Raises `SourceError` naming the file when it is gone, has changed or cannot be read.
        """
        ...


class Source(Protocol):
    """A table that can be read again. Can be pickled. Rows in no particular order."""

    @property
    def label(self) -> str:
        """What it is, for people: "parquet data/lineitem"."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """The columns as delivered."""
        ...

    @property
    def n_rows(self) -> int | None:
        """How many rows it has, if that is known without reading them."""
        ...

    @property
    def n_bytes(self) -> int | None:
        """Roughly what all its columns take in memory, if that is known."""
        ...

    @property
    def is_direct(self) -> bool:
        """Whether tasks can read splits themselves. If not, only `dataframe` reads it."""
        ...

    def splits(self, where: tuple[Expr, ...] = ()) -> list[Split]:
        """The finest useful parts, without those in which no row can pass `where`."""
        ...

    def dataframe(self, spark: SparkSession) -> DataFrame:
        """The same rows and columns as Spark itself reads them."""
        ...


def is_source(candidate: object) -> TypeGuard[Source]:
    """Whether `candidate` is a `Source`."""
    return all(hasattr(candidate, name) for name in ("splits", "dataframe", "is_direct", "label"))
