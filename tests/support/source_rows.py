"""Rows of a source as a task gets them: through splits that were pickled."""

from __future__ import annotations

import pickle

import pyarrow as pa

from eddies.core.expr import Expr
from eddies.sources import Source

__all__ = ["read_all"]


def read_all(
    source: Source, columns: list[str] | None = None, where: tuple[Expr, ...] = (), **settings: int
) -> pa.Table:
    """All rows that splits deliver, in the types of the source's schema."""
    columns = source.schema.names if columns is None else columns
    batches = []
    for split in pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(source)).splits(where))):
        batches += list(split.read(columns, where, **settings))
    schema = pa.schema([source.schema.field(name) for name in columns])
    return pa.Table.from_batches(batches, schema=schema)
