"""Several ways to the same rows: mirrors and indexes, added to any source.

    orders = eddies.read.parquet("orders").mirror(eddies.read.http("http://.../orders"))
    users = eddies.read.postgres(dsn, "users")                   # a scan, and its indexes
    rates = eddies.read.parquet("rates").index(on=["currency"], lookup=ask_the_bank)
    names = eddies.read.lookup(schema, on=["id"], lookup=directory)     # no scan at all

Each of these is an `AccessSource`: scans that hold the same rows, indexes on them, and the columns that
identify a row if somebody has said so. Nothing is decided here; while a query runs, the eddy takes
rows from whichever way is fast and drops what comes twice (`eddies.core.access`).

A host that knows nothing of indexes reads an `AccessSource` as one table. Its splits are those of the
scan alone if there is only one. With mirrors there is one split: it reads the first scan, and when
that fails goes on with the next, leaving out the rows it has delivered.

Known limitation: mirrors are believed to hold the same rows. With a declared key, a row that differs
is reported and the first to come counts; without one it is another row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from eddies.core.access.identity import Identities
from eddies.core.access.method import Access, IndexAccess
from eddies.core.expr import Expr
from eddies.core.graph import Relation
from eddies.core.state.columns import normal_type
from eddies.core.state.rows import Block, RowStore
from eddies.errors import SourceError
from eddies.sources.source import DEFAULT_BATCH_ROWS, Source, Split, is_source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["AccessSource", "Reachable", "access_of"]

DEFAULT_CONCURRENCY = 8


class Reachable:
    """What every source of `eddies.read` can do."""

    def mirror(self, other: Source) -> AccessSource:
        """The same rows from another place; both are used, whichever is faster or alive."""
        mine = access_source(self)
        theirs = access_source(other)
        for field in mine.schema:
            found = theirs.schema.get_field_index(field.name)
            if found < 0 or normal_type(theirs.schema.field(found).type) != normal_type(field.type):
                has = "none" if found < 0 else str(theirs.schema.field(found).type)
                raise SourceError(
                    f"{theirs.label} cannot be a mirror of {mine.label}: column {field.name!r} has "
                    f"type {field.type} here and {has} there"
                )
        indexes = list(mine.indexes)
        for index in theirs.indexes:
            taken = {other.name for other in indexes}
            names = (f"{index.name} (mirror{f' {n}' * (n > 1)})" for n in count(1))
            free = (
                index.name if index.name not in taken else next(n for n in names if n not in taken)
            )
            indexes.append(replace(index, name=free))
        return replace(
            mine,
            scans=(*mine.scans, *theirs.scans),
            indexes=tuple(indexes),
            key=mine.key or theirs.key,
        )

    def index(
        self,
        on: Sequence[str],
        lookup: Callable[[pa.RecordBatch], object],
        *,
        name: str | None = None,
        keys_per_lookup: int = 1,
        concurrency: int = DEFAULT_CONCURRENCY,
        timeout_s: float = 30.0,
        retries: int = 3,
        backoff_s: float = 0.1,
    ) -> AccessSource:
        """An index on the columns `on`: `lookup` gets a batch of keys and returns their rows, as an
        Arrow table or batch, or as a list of dictionaries.
        """
        mine = access_source(self)
        columns = (on,) if isinstance(on, str) else tuple(on)
        for column in columns:
            if column not in mine.schema.names:
                raise SourceError(
                    f"{mine.label} has no column {column!r} to be looked up by; it has "
                    f"{', '.join(mine.schema.names)}"
                )
        if not callable(lookup):
            raise SourceError(f"lookup must be a function, not a {type(lookup).__name__}")
        index = IndexAccess(
            name or f"by {', '.join(columns)}" + (f" #{n}" if (n := len(mine.indexes)) else ""),
            columns,
            _AsRows(lookup, mine.schema),
            keys_per_lookup,
            concurrency,
            timeout_s,
            retries,
            backoff_s,
        )
        return replace(mine, indexes=(*mine.indexes, index))

    def keyed(self, *columns: str) -> AccessSource:
        """Say that these columns identify a row: no two rows agree in all of them."""
        mine = access_source(self)
        for column in columns:
            if column not in mine.schema.names:
                raise SourceError(f"{mine.label} has no column {column!r} to be its key")
        return replace(mine, key=tuple(columns))


@dataclass(frozen=True, slots=True)
class _AsRows:
    """A look-up whose answer may be a list of dictionaries."""

    lookup: Callable[[pa.RecordBatch], object]
    schema: pa.Schema

    def __call__(self, keys: pa.RecordBatch) -> pa.RecordBatch | pa.Table:
        rows = self.lookup(keys)
        if isinstance(rows, list | tuple):
            return pa.Table.from_pylist([dict(row) for row in rows], schema=self.schema)
        if isinstance(rows, pa.Table | pa.RecordBatch):
            return rows
        raise TypeError(
            f"the look-up returned a {type(rows).__name__}; expected an Arrow table or batch, or a "
            "list of dictionaries"
        )


@dataclass(frozen=True)
class AccessSource(Reachable):
    """A source with all its access methods. See the module docstring."""

    label: str
    schema: pa.Schema
    scans: tuple[Source, ...]
    indexes: tuple[IndexAccess, ...] = ()
    key: tuple[str, ...] = ()

    def __repr__(self) -> str:
        ways = f"{len(self.scans)} scans, {len(self.indexes)} indexes"
        return f"<{self.label}: {ways}>"

    @property
    def n_rows(self) -> int | None:
        known = [scan.n_rows for scan in self.scans if scan.n_rows is not None]
        return known[0] if known else None

    @property
    def n_bytes(self) -> int | None:
        known = [scan.n_bytes for scan in self.scans if scan.n_bytes is not None]
        return known[0] if known else None

    @property
    def is_direct(self) -> bool:
        return all(scan.is_direct for scan in self.scans)

    def _needed_scans(self) -> tuple[Source, ...]:
        if not self.scans:
            raise SourceError(
                f"{self.label} has no scan: it can only be looked up by "
                f"{' or '.join(str(list(index.bind)) for index in self.indexes)}, which needs a join "
                "inside an eddy, in memory and without streams; give the source a scan"
            )
        return self.scans

    def splits(self, where: tuple[Expr, ...] = ()) -> list[Split]:
        """Those of the only scan, or one for all mirrors."""
        scans = self._needed_scans()
        if len(scans) == 1:
            return scans[0].splits(where)
        parts = tuple(tuple(scan.splits(where)) for scan in scans)
        labels = tuple(scan.label for scan in scans)
        return [_MirrorSplit(self.schema, self.key, labels, parts, self.n_bytes)]

    def dataframe(self, spark: SparkSession) -> DataFrame:
        """As Spark reads the first scan that it can read."""
        return self._needed_scans()[0].dataframe(spark)


def access_source(source: Any) -> AccessSource:
    """Any source as an `AccessSource`."""
    if isinstance(source, AccessSource):
        return source
    if not is_source(source):
        raise SourceError(
            f"expected a source of eddies.read, not a {type(source).__name__}; "
            "wrap an Arrow table by eddies.read.arrow"
        )
    key = tuple(getattr(source, "key", ()))
    indexes = tuple(getattr(source, "indexes", ()))
    return AccessSource(source.label, source.schema, (source,), indexes, key)


def access_of(source: AccessSource) -> tuple[Access, dict[str, Source]]:
    """The source's access methods as the eddy wants them, and its scans by name."""
    names = [f"scan {number}" for number in range(len(source.scans))]
    scans = dict(zip(names, source.scans, strict=True))
    return Access(tuple(names), source.indexes, source.key), scans


@dataclass(frozen=True, slots=True)
class _MirrorSplit:
    """All rows of mirrors: of the first, and after a failure the rest of the next.

    When that happens is anybody's guess, so two readings may give other batches in another order:
    `is_repeatable` tells hosts not to cut it at row numbers, and `n_rows` is not told.
    """

    is_repeatable: ClassVar[bool] = False
    n_rows: ClassVar[int | None] = None
    schema: pa.Schema
    key: tuple[str, ...]
    labels: tuple[str, ...]
    parts: tuple[tuple[Split, ...], ...]
    n_bytes: int | None

    def read(
        self,
        columns: Sequence[str],
        where: tuple[Expr, ...] = (),
        batch_rows: int = DEFAULT_BATCH_ROWS,
    ) -> Iterator[pa.RecordBatch]:
        """See `Split.read`. Fails when every mirror has failed, naming each failure."""
        fields = [self.schema.field(name) for name in columns]
        stored = pa.schema([field.with_type(normal_type(field.type)) for field in fields])
        delivered = _Delivered(stored, self.key)
        failures = []
        for number, (label, splits) in enumerate(zip(self.labels, self.parts, strict=True)):
            try:
                for split in splits:
                    for batch in split.read(columns, where, batch_rows):
                        new = delivered.new_rows(batch, f"mirror {number}")
                        if new.num_rows:
                            yield new
            except SourceError as error:
                failures.append(f"{label}: {error}")
                continue
            return
        raise SourceError(f"every mirror failed: {'; '.join(failures)}")


class _Delivered:
    """Rows that went out already, so that a mirror does not deliver them again."""

    def __init__(self, schema: pa.Schema, key: tuple[str, ...]) -> None:
        relation = Relation("mirrors", (), schema, (), {}, schema)
        self._schema = schema
        self._store = RowStore("mirrors", schema)
        self._identities = Identities(relation, key, self._store) if schema.names else None
        self._counts: dict[str, int] = {}

    def new_rows(self, batch: pa.RecordBatch, label: str) -> pa.RecordBatch:
        if self._identities is None:
            return self._uncounted(batch, label)
        block = self._block(batch)
        new = self._identities.sort_out(block, label).new
        if new.shape[0] == batch.num_rows:
            self._store.append(block)
            return batch
        picked = batch.take(pa.array(new))
        self._store.append(self._block(picked))
        return picked

    def _block(self, batch: pa.RecordBatch) -> Block:
        arrays = {field.name: batch.column(field.name).cast(field.type) for field in self._schema}
        return Block.from_arrow(arrays, batch.num_rows)

    def _uncounted(self, batch: pa.RecordBatch, label: str) -> pa.RecordBatch:
        """Without columns rows are only counted."""
        mine = self._counts.get(label, 0)
        most = max(self._counts.values(), default=0)
        self._counts[label] = mine + batch.num_rows
        return batch.slice(0, int(np.clip(mine + batch.num_rows - most, 0, batch.num_rows)))
