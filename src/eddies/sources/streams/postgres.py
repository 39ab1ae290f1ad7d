"""A PostgreSQL table as a stream: pages in the order of the primary key.

An offset is the key of the last row that has been read, as PostgreSQL writes it. One statement finds
the key that lies the next rows on; whoever reads asks for the rows between two keys, on a connection
that his process keeps. Tables without a primary key are read by blocks: an offset is a block, and a
step is at least one block (at most some 290 rows). Views are read in one step.

Known limitations, beyond those of `eddies.sources.postgres`: the rows between two offsets are read
again when an epoch is run again, so exactly-once needs that they have not changed meanwhile. Rows are
read up to the last key that existed when the scan came there: what is inserted later behind that is
not seen.

"""

from __future__ import annotations

import atexit
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pyarrow as pa

from eddies.core.expr import Expr
from eddies.sources.postgres import PostgresSource
from eddies.sources.postgres_text import literal, quoted, row_literal
from eddies.sources.streams.base import Offset, Part, offset_at

__all__ = ["PostgresStream"]

_BLOCK_BYTES = 8192
_LEAST_ROWS_A_BLOCK = 8  # assumed when deciding how many blocks to count at once
_connections: dict[tuple[str, str], Any] = {}  # of this process, so that each step need not connect
atexit.register(_connections.clear)  # while the driver can still close them


@dataclass(frozen=True, slots=True)
class PostgresPart:
    """Rows between two places. `split` is a split of the source, cut to them."""

    is_patient: ClassVar[bool] = True
    split: Any  # that of `eddies.sources.postgres`
    n_rows: int
    where: tuple[Expr, ...]

    def read(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """See `Part.read`."""
        mine = self.split.connections
        kept = _connections.setdefault((mine.dsn, mine.label), mine)
        yield from replace(self.split, connections=kept).read(columns, self.where)


class PostgresStream:
    """See the module docstring."""

    is_mirrored: ClassVar[bool] = False
    is_patient: ClassVar[bool] = True
    n_rows: ClassVar[int | None] = None

    def __init__(self, source: PostgresSource, where: tuple[Expr, ...] = ()) -> None:
        self.label = source.label
        self.schema = source.schema
        self.key = source.key
        self._where = where
        split: Any = source.splits()[0]  # connections and catalog are known to it
        self._split = replace(split, ends=(), n_parts=1)

    def narrowed(self, columns: Sequence[str]) -> PostgresStream:
        """Itself: whoever reads a part says which columns."""
        return self

    def start(self) -> Offset:
        return offset_at(0)

    def is_end(self, offset: Offset) -> bool:
        return bool(offset["end"])

    def latest(self, offset: Offset, most_rows: int) -> Offset:
        """Asks the server, so it may wait."""
        if offset["end"]:
            return offset
        if self.key:
            return self._next_key(offset, most_rows)
        if self._split.catalog.n_blocks is None:
            return offset_at(self._split.catalog.n_rows or 0, is_end=True)
        return self._next_block(offset, most_rows)

    def _ask(self, statement: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self._split.connections.rows(statement).to_pylist()
        return rows

    def _next_key(self, offset: Offset, most_rows: int) -> Offset:
        columns = ", ".join(quoted(name) for name in self.key)
        texts = ", ".join(f"{quoted(name)}::text AS {quoted(name)}" for name in self.key)
        condition = self._after(offset)
        where = f" WHERE {condition}" if condition else ""
        found = self._ask(
            f"SELECT {texts}, eddies_n FROM (SELECT {columns}, "
            f"row_number() OVER (ORDER BY {columns}) AS eddies_n "
            f"FROM {self._split.catalog.name}{where} ORDER BY {columns} LIMIT {most_rows}) AS page "
            "ORDER BY eddies_n DESC LIMIT 1"
        )
        if not found:
            return {**offset, "end": True}
        n_rows = found[0]["eddies_n"]
        key = [found[0][name] for name in self.key]
        return offset_at(offset["rows"] + n_rows, is_end=n_rows < most_rows, after=key)

    def _after(self, offset: Offset) -> str:
        return self._compared(">", offset["after"]) if "after" in offset else ""

    def _compared(self, sign: str, key: Sequence[str]) -> str:
        types = [self._split.catalog.type_of(name) for name in self.key]
        return f"({', '.join(map(quoted, self.key))}) {sign} {row_literal(key, types)}"

    def _next_block(self, offset: Offset, most_rows: int) -> Offset:
        name = self._split.catalog.name
        first = offset.get("block", 0)
        (size,) = self._ask(f"SELECT pg_relation_size({literal(name, 'regclass')}) AS n_bytes")
        n_blocks = size["n_bytes"] // _BLOCK_BYTES
        stop = min(n_blocks, first + max(1, most_rows // _LEAST_ROWS_A_BLOCK))
        counts = self._ask(
            "SELECT (ctid::text::point)[0]::bigint AS block, count(*) AS n "
            f"FROM {name} WHERE {_in_blocks(first, stop)} GROUP BY 1 ORDER BY 1"
        )
        rows, end = 0, stop
        for count in counts:
            if rows and rows + count["n"] > most_rows:
                end = count["block"]
                break
            rows += count["n"]
        return offset_at(offset["rows"] + rows, is_end=end >= n_blocks, block=end)

    def parts(self, start: Offset, end: Offset) -> list[Part]:
        if start["end"]:
            return []
        n_rows = end["rows"] - start["rows"]
        if self.key:
            if "after" not in end or start.get("after") == end["after"]:
                return []
            ends = [self._after(start), self._compared("<=", end["after"])]
            split = replace(self._split, ends=tuple(filter(None, ends)))
        elif "block" in end:
            first, stop = start.get("block", 0), end["block"]
            if first == stop:
                return []
            # One statement for all: the blocks have been chosen already.
            catalog = replace(self._split.catalog, n_blocks=None)
            split = replace(self._split, catalog=catalog, ends=(_in_blocks(first, stop),))
        else:
            split = self._split
        return [PostgresPart(split, n_rows, self._where)]


def _in_blocks(first: int, stop: int) -> str:
    return f"ctid >= '({first},0)' AND ctid < '({stop},0)'"
