"""Small queries in few words, for tests that look at one thing at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from eddies.core.eddy import Eddy
from eddies.core.expr import Column
from eddies.core.options import Options
from eddies.core.query import Equality, Output, Query, Source

__all__ = ["Recorder", "answer", "batches", "col", "drained", "make_query"]


class Recorder:
    """An event sink that keeps everything."""

    def __init__(self) -> None:
        self.events: list[object] = []

    def emit(self, event: object) -> None:
        self.events.append(event)

    def of(self, kind: type) -> list[Any]:
        """The events of one kind, in order."""
        return [event for event in self.events if isinstance(event, kind)]


def col(text: str) -> Column:
    """`"a.x"` as a column."""
    source, name = text.split(".")
    return Column(source, name)


def make_query(
    tables: Mapping[str, pa.Table],
    on: Iterable[str] = (),
    roles: Mapping[str, str] | None = None,
    output: Iterable[str] | None = None,
    **settings: Any,
) -> Query:
    """A query that joins `tables` on equalities such as "a.x = b.y".

    `roles` maps aliases to tables (when not given, each table is its own alias); `output` names
    columns (all of all roles when it is not given).
    """
    of = dict(roles) if roles is not None else {name: name for name in tables}
    schemas = {alias: tables[table].schema for alias, table in of.items()}
    equalities = []
    for text in on:
        left, right = (col(side.strip()) for side in text.split("="))
        equalities.append(Equality(left, right, schemas[left.source].field(left.name).type))
    wanted = output if output is not None else [f"{a}.{n}" for a in of for n in schemas[a].names]
    outputs = []
    for text in wanted:
        column = col(text)
        type_ = schemas[column.source].field(column.name).type
        outputs.append(Output(text.replace(".", "_"), column, type_))
    return Query(
        sources=tuple(Source(a, t, schemas[a]) for a, t in of.items()),
        equalities=tuple(equalities),
        output=tuple(outputs),
        **settings,
    )


def batches(table: pa.Table, rows: int | None = None) -> list[pa.RecordBatch]:
    """`table` in batches of `rows` rows (one batch when it is not given)."""
    return list(table.combine_chunks().to_batches(max_chunksize=rows or max(1, table.num_rows)))


def drained(eddy: Eddy) -> pa.Table:
    """Everything the eddy has to say now."""
    found = []
    while (rows := eddy.poll()) is not None:
        found.append(rows)
    return pa.Table.from_batches(found, schema=eddy.output.schema)


def answer(
    query: Query,
    tables: Mapping[str, pa.Table],
    options: Options | None = None,
    *,
    rows: int | None = None,
    **settings: Any,
) -> pa.Table:
    """The answer when all tables are pushed, in turns of `rows` rows, before anyone polls."""
    eddy = Eddy(query, options, **settings)
    waiting = {name: batches(table, rows) for name, table in tables.items()}
    while any(waiting.values()):
        for name, pieces in waiting.items():
            if pieces:
                eddy.push(name, pieces.pop(0))
    for name in tables:
        eddy.end(name)
    found = drained(eddy)
    assert eddy.is_done
    return found
