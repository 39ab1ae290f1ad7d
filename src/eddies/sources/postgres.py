"""A PostgreSQL table as a source: read page by page, looked up by whatever it has an index on.

The catalog says what the table has: columns and types, the primary key, indexes. A *scan* reads pages
in the order of the primary key, each beginning after the last key of the one before (keyset pages), so
a connection that breaks costs one page, not the scan. Tables without a primary key are read by ranges
of blocks. Every column with a B-tree or hash index becomes an *index*, and so do all columns together
of an index on several. Look-ups ask for many keys in one statement.

Types: integers, floating point, boolean, text, bytea, dates and timestamps are what they are; numeric
is decimal (without a precision: 38 digits, 18 of them after the point); everything else (uuid, json,
enumerations, ...) is delivered as PostgreSQL prints it.

Known limitations: pages are separate statements, each with its own snapshot, so rows that change while
a query runs are seen in some page's state, and rows of a table without a primary key may be missed or
seen twice if they are moved meanwhile. Views are read in one statement, which is not resumed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from eddies.core.access.method import IndexAccess
from eddies.core.expr import Call, Column, Expr, Literal
from eddies.errors import SourceError
from eddies.sources.postgres_catalog import Catalog, read_catalog
from eddies.sources.postgres_text import comparison, literal, quoted, row_literal
from eddies.sources.reachable import Reachable
from eddies.sources.retries import Patience
from eddies.sources.source import DEFAULT_BATCH_ROWS, Split
from eddies.sources.through_tasks import dataframe_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["PostgresSource"]

_ROWS_PER_SPLIT = 500_000
_MOST_SPLITS = 32
_BLOCKS_PER_PAGE = 1024  # of 8 KB
_ONE_STATEMENT = "view"


@dataclass(frozen=True)
class _Connections:
    """Connections by thread. Can be pickled: connections are made where they are needed."""

    dsn: str
    patience: Patience
    label: str
    _local: threading.local = field(default_factory=threading.local, compare=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Connections, (self.dsn, self.patience, self.label)

    def rows(self, statement: str) -> pa.Table:
        """The answer to one statement, tried again on a new connection when one breaks."""
        return self.patience.call(self.label, lambda: self._ask(statement), _is_passing)

    def once(self, statement: str) -> pa.Table:
        """The same, tried once."""
        return self._ask(statement)

    def _ask(self, statement: str) -> pa.Table:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = _driver().connect(self.dsn)
            self._local.connection = connection
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                table = cursor.fetch_arrow_table()
            connection.rollback()  # ends the snapshot; nothing was written
        except Exception:
            self._local.connection = None
            _close(connection)
            raise
        return table


def _driver() -> Any:
    try:
        driver = import_module("adbc_driver_postgresql.dbapi")
    except ImportError:
        raise SourceError(
            "PostgreSQL sources need the package adbc-driver-postgresql; install eddies[postgres]"
        ) from None
    return driver


def _close(connection: Any) -> None:
    try:
        connection.close()
    except Exception:  # noqa: BLE001 - it is broken already
        return


_LASTING = ("42", "28", "22", "3D", "3F")  # classes of errors that trying again does not mend


def _is_passing(error: Exception) -> bool:
    """Whether it is worth another attempt: lost connections and restarts are, wrong SQL is not."""
    if isinstance(error, SourceError):
        return False
    state = getattr(error, "sqlstate", None) or ""
    return not (state and state[:2] in _LASTING)


class PostgresSource(Reachable):
    """See `eddies.read.postgres`."""

    is_direct = True

    def __init__(
        self,
        dsn: str,
        table: str,
        *,
        page_rows: int = 50_000,
        keys_per_lookup: int = 200,
        concurrency: int = 4,
        timeout_s: float = 30.0,
        retries: int = 8,
        backoff_s: float = 0.1,
    ) -> None:
        if page_rows < 1:
            raise SourceError(f"page_rows must be at least 1, not {page_rows}")
        self.label = f"postgres {table}"
        patience = Patience(retries, backoff_s, timeout_s)
        self._connections = _Connections(dsn, patience, self.label)
        self._page_rows = page_rows
        self._catalog: Catalog = read_catalog(self._connections.rows, table)
        self.schema = self._catalog.schema
        self.key = self._catalog.primary_key
        self.indexes = tuple(
            IndexAccess(
                f"{table} by {', '.join(columns)}",
                columns,
                _Lookup(self._connections, self._catalog, columns),
                keys_per_lookup,
                concurrency,
                timeout_s,
                min(retries, 5),
                backoff_s,
            )
            for columns in self._catalog.indexed
        )

    def __repr__(self) -> str:
        by = "; ".join(", ".join(index.bind) for index in self.indexes) or "nothing"
        return f"<{self.label}: about {self.n_rows} rows, indexed by {by}>"

    @property
    def n_rows(self) -> int | None:
        """What PostgreSQL estimates; None before the table was analysed."""
        return self._catalog.n_rows

    @property
    def n_bytes(self) -> int | None:
        return self._catalog.n_bytes

    def splits(self, where: tuple[Expr, ...] = ()) -> list[Split]:
        """Ranges of the primary key if it is one integer, else everything at once."""
        parts: list[tuple[str, ...]] = [()]
        if len(self.key) == 1 and pa.types.is_integer(self.schema.field(self.key[0]).type):
            parts = self._ranges(self.key[0])
        return [
            _PostgresSplit(self._connections, self._catalog, self._page_rows, part, len(parts))
            for part in parts
        ]

    def _ranges(self, key: str) -> list[tuple[str, ...]]:
        n_parts = min(_MOST_SPLITS, 1 + (self.n_rows or 0) // _ROWS_PER_SPLIT)
        if n_parts == 1:
            return [()]
        column = quoted(key)
        ends = self._connections.rows(
            f"SELECT min({column}) AS low, max({column}) AS high FROM {self._catalog.name}"
        ).to_pylist()[0]
        if ends["low"] is None:
            return [()]
        width = (ends["high"] - ends["low"]) // n_parts + 1
        cuts = [ends["low"] + width * i for i in range(1, n_parts)]
        lows, highs = [None, *cuts], [*cuts, None]
        return [
            tuple(
                text
                for text, end in ((f"{column} >= {low}", low), (f"{column} < {high}", high))
                if end is not None
            )
            for low, high in zip(lows, highs, strict=True)
        ]

    def dataframe(self, spark: SparkSession) -> DataFrame:
        """Rows read by tasks, split by split."""
        return dataframe_of(self, spark)


@dataclass(frozen=True, slots=True)
class _Lookup:
    """Rows by keys."""

    connections: _Connections
    catalog: Catalog
    bind: tuple[str, ...]

    def __call__(self, keys: pa.RecordBatch) -> pa.Table:
        types = [self.catalog.type_of(name) for name in self.bind]
        if len(self.bind) == 1:
            values = ", ".join(literal(v, types[0]) for v in keys.column(0).to_pylist())
            where = f"{quoted(self.bind[0])} IN ({values})"
        else:
            rows = (tuple(row[name] for name in self.bind) for row in keys.to_pylist())
            values = ", ".join(row_literal(row, types) for row in rows)
            where = f"({', '.join(map(quoted, self.bind))}) IN (VALUES {values})"
        columns = self.catalog.schema.names
        statement = (
            f"SELECT {self.catalog.selected(columns)} FROM {self.catalog.name} WHERE {where}"
        )
        return self.catalog.delivered(self.connections.once(statement), columns)


@dataclass(frozen=True, slots=True)
class _PostgresSplit:
    """A range of the primary key, read in pages; or the whole table.

    The catalog only estimates how many rows there are, so nobody is told.
    """

    is_repeatable: ClassVar[bool] = False
    n_rows: ClassVar[int | None] = None
    connections: _Connections
    catalog: Catalog
    page_rows: int
    ends: tuple[str, ...]
    n_parts: int

    @property
    def n_bytes(self) -> int | None:
        n_bytes = self.catalog.n_bytes
        return None if n_bytes is None else n_bytes // self.n_parts

    def read(
        self,
        columns: Sequence[str],
        where: tuple[Expr, ...] = (),
        batch_rows: int = DEFAULT_BATCH_ROWS,
    ) -> Iterator[pa.RecordBatch]:
        """See `Split.read`."""
        conditions = [*self.ends, *_pushed(where, self.catalog)]
        if self.catalog.primary_key:
            pages = self._keyset_pages(columns, conditions, min(batch_rows, self.page_rows))
        elif self.catalog.n_blocks is None:
            pages = iter([self.connections.rows(self._select(columns, conditions))])
        else:
            pages = self._block_pages(columns, conditions)
        for page in pages:
            table = self.catalog.delivered(page, columns)
            if columns:
                yield from table.to_batches(max_chunksize=batch_rows)
            else:
                yield _uncolumned(page.num_rows)

    def _select(self, columns: Sequence[str], conditions: Sequence[str], rest: str = "") -> str:
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"SELECT {self.catalog.selected(columns)} FROM {self.catalog.name}{where}{rest}"

    def _keyset_pages(
        self, columns: Sequence[str], conditions: Sequence[str], page_rows: int
    ) -> Iterator[pa.Table]:
        key = self.catalog.primary_key
        types = [self.catalog.type_of(name) for name in key]
        order = f" ORDER BY {', '.join(map(quoted, key))} LIMIT {page_rows}"
        wanted = [*columns, *(name for name in key if name not in columns)]
        after: list[str] = []
        while True:
            page = self.connections.rows(self._select(wanted, [*conditions, *after], order))
            if page.num_rows:
                yield page
            if page.num_rows < page_rows:
                return
            last = self.catalog.delivered(page.slice(page.num_rows - 1), key).to_pylist()[0]
            row = row_literal(tuple(last[name] for name in key), types)
            after = [f"({', '.join(map(quoted, key))}) > {row}"]

    def _block_pages(self, columns: Sequence[str], conditions: Sequence[str]) -> Iterator[pa.Table]:
        n_blocks = self.catalog.n_blocks or 0
        for first in range(0, n_blocks + 1, _BLOCKS_PER_PAGE):
            blocks = [f"ctid >= '({first},0)'"]
            if first + _BLOCKS_PER_PAGE <= n_blocks:
                blocks.append(f"ctid < '({first + _BLOCKS_PER_PAGE},0)'")
            yield self.connections.rows(self._select(columns, [*conditions, *blocks]))


def _pushed(where: tuple[Expr, ...], catalog: Catalog) -> list[str]:
    """Comparisons of a column with a constant that mean the same in PostgreSQL."""
    found = []
    for expr in where:
        if not (isinstance(expr, Call) and len(expr.args) == 2):
            continue
        left, right = expr.args
        if isinstance(left, Column) and isinstance(right, Literal) and left.name in catalog.types:
            text = comparison(expr.function, left.name, right, catalog.type_of(left.name))
            found += [text] if text else []
    return found


def _uncolumned(n_rows: int) -> pa.RecordBatch:
    counted = pa.RecordBatch.from_arrays([pc.cast(pa.nulls(n_rows), pa.int8())], ["n"])
    return counted.select([])
