"""What PostgreSQL's catalog says of a table: columns, types, primary key, indexes, size."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from eddies.errors import SourceError
from eddies.sources.postgres_text import literal, quoted

__all__ = ["Catalog", "read_catalog"]

_TYPES: Mapping[str, pa.DataType] = {
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "real": pa.float32(),
    "double precision": pa.float64(),
    "boolean": pa.bool_(),
    "text": pa.string(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "timestamp without time zone": pa.timestamp("us"),
    "timestamp with time zone": pa.timestamp("us", tz="UTC"),
}
_BLOCK_BYTES = 8192


@dataclass(frozen=True, slots=True)
class Catalog:
    """One table. `types` are PostgreSQL's names of the columns' types."""

    name: str
    schema: pa.Schema
    types: Mapping[str, str]
    as_text: frozenset[str]
    primary_key: tuple[str, ...]
    indexed: tuple[tuple[str, ...], ...]
    n_rows: int | None
    n_bytes: int | None
    n_blocks: int | None  # None for what has no blocks of its own, such as a view

    def type_of(self, column: str) -> str:
        """PostgreSQL's name of a column's type."""
        return self.types[column]

    def selected(self, columns: Sequence[str]) -> str:
        """The list after SELECT."""
        texts = []
        for name in columns:
            cast = "::text" if name in self.as_text else ""
            texts.append(f"{quoted(name)}{cast} AS {quoted(name)}")
        return ", ".join(texts) or "1 AS n"

    def delivered(self, rows: pa.Table, columns: Sequence[str]) -> pa.Table:
        """`columns` of the answer in the types of `schema`."""
        arrays = []
        for name in columns:
            type_ = self.schema.field(name).type
            array = rows.column(name)
            arrays.append(array if array.type == type_ else pc.cast(array, type_))
        return pa.table(arrays, schema=pa.schema([self.schema.field(name) for name in columns]))


def read_catalog(ask: Callable[[str], pa.Table], table: str) -> Catalog:
    """Ask the catalog about `table`, which may be named with its schema: "sales.orders"."""
    name = ".".join(quoted(part) for part in _parts(table))
    found = ask(
        "SELECT c.oid::bigint AS oid, c.relkind::text AS kind, c.reltuples::float8 AS n_rows, "
        "pg_relation_size(c.oid)::bigint AS n_bytes FROM pg_class c "
        f"WHERE c.oid = to_regclass({literal(name, 'text')})"
    ).to_pylist()
    if not found:
        raise SourceError(
            f"PostgreSQL has no table {table!r} on this connection's search path; write "
            "schema.table if it lies elsewhere, and mind upper and lower case"
        )
    oid, kind = found[0]["oid"], found[0]["kind"]
    columns = ask(
        "SELECT attnum::int AS number, attname::text AS name, "
        "format_type(atttypid, atttypmod) AS type FROM pg_attribute "
        f"WHERE attrelid = {oid} AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
    ).to_pylist()
    fields, types, as_text = [], {}, set()
    for column in columns:
        type_, is_text = _arrow_type(column["type"])
        fields.append(pa.field(column["name"], type_))
        types[column["name"]] = column["type"]
        if is_text:
            as_text.add(column["name"])
    names = {column["number"]: column["name"] for column in columns}
    key, indexed = _indexes(ask, oid, names)
    has_blocks = kind in ("r", "m")
    n_rows = int(found[0]["n_rows"]) if found[0]["n_rows"] >= 0 else None
    return Catalog(
        name,
        pa.schema(fields),
        types,
        frozenset(as_text),
        key,
        indexed,
        n_rows if has_blocks else None,
        found[0]["n_bytes"] if has_blocks else None,
        found[0]["n_bytes"] // _BLOCK_BYTES if has_blocks else None,
    )


def _parts(table: str) -> list[str]:
    parts = table.split(".")
    if not all(parts) or len(parts) > 2:
        raise SourceError(f"{table!r} is not the name of a table; write table or schema.table")
    return parts


def _arrow_type(name: str) -> tuple[pa.DataType, bool]:
    """The type as delivered, and whether PostgreSQL is asked for it as text."""
    plain = re.sub(r"\([0-9, ]*\)", "", name)
    if name in _TYPES:
        return _TYPES[name], False
    if plain in ("character varying", "character"):
        return pa.string(), False
    if plain.startswith("timestamp"):
        return _TYPES[plain], False
    if plain == "numeric":
        found = re.search(r"\(([0-9]+),([0-9]+)\)", name)
        precision, scale = (int(found[1]), int(found[2])) if found else (38, 18)
        if precision <= 38:
            return pa.decimal128(precision, scale), True
    return pa.string(), True


def _indexes(
    ask: Callable[[str], pa.Table], oid: int, names: Mapping[int, str]
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """The primary key, and the sets of columns that can be looked up by."""
    found = ask(
        "SELECT i.indisprimary AS is_primary, i.indkey::text AS columns, i.indnkeyatts::int AS n "
        "FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam "
        f"WHERE i.indrelid = {oid} AND i.indisvalid AND i.indpred IS NULL "
        "AND a.amname IN ('btree', 'hash') ORDER BY i.indisprimary DESC, c.relname"
    ).to_pylist()
    key: tuple[str, ...] = ()
    indexed: dict[frozenset[str], tuple[str, ...]] = {}
    for index in found:
        numbers = [int(number) for number in index["columns"].split()][: index["n"]]
        if 0 in numbers:
            continue  # an index on an expression
        columns = tuple(names[number] for number in numbers)
        if index["is_primary"]:
            key = columns
        for usable in (columns[:1], columns):
            indexed.setdefault(frozenset(usable), usable)
    return key, tuple(indexed.values())
