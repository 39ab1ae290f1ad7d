"""The way in: from an Arrow batch to a block of rows the eddy can route.

Takes the columns the query needs, brings them to their normal types, applies the cheap selections and
computes derived key columns. Selections of one source are applied in the order of the text and each
only sees rows that passed those before it, so `x <> 0 AND 10 / x > 1` does not divide by zero.

For a relation with several roles a row is kept if any role wants it, and a flag column per role says
which. A derived column is computed for the rows that a role which uses it wants, and is NULL for the
others: `t a JOIN t b ON a.id = CAST(b.s AS bigint) WHERE b.s <> 'x'` never casts 'x'.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eddies.core.constants import with_constants
from eddies.core.evaluate import evaluate, keep
from eddies.core.expr import Column, Expr, columns_of
from eddies.core.graph import Graph, Relation
from eddies.core.state.rows import Block
from eddies.errors import SourceError

__all__ = ["Entry"]

Arrays = dict[str, pa.Array]


class Entry:
    """The entry of one relation."""

    def __init__(self, graph: Graph, relation: Relation) -> None:
        self._relation = relation
        self._functions = graph.functions
        self._roles = [graph.roles[source_id] for source_id in relation.roles]
        self._selections = [tuple(map(with_constants, role.selections)) for role in self._roles]
        self._derives = bool(relation.derived)
        self._stored = relation.stored.names
        self._schema: pa.Schema | None = None  # of the last batch, and where its columns are
        self._places: list[tuple[str, int]] = []
        self._needed = set(relation.stored.names) | _names(expr for _, expr in relation.derived)

    def admit(self, batch: pa.RecordBatch) -> Block:
        """The rows of `batch` that some role wants, with derived columns and role flags."""
        arrays = self._read(batch)
        n_rows = batch.num_rows
        if len(self._roles) == 1:
            selections = self._selections[0]
            for i, predicate in enumerate(selections):
                kept = keep(predicate, _reader(arrays), n_rows, self._functions)
                if kept is not None:
                    needed = self._needed | _names(selections[i + 1 :])
                    arrays, n_rows = _filtered(arrays, kept, needed)
        else:
            arrays, n_rows = self._flagged(arrays, n_rows)
        if self._derives:
            for name, expr in self._relation.derived:
                arrays[name] = self._derived(name, expr, arrays, n_rows)
        stored = {name: arrays[name] for name in self._stored}
        return Block.from_arrow(stored, n_rows, batch.num_rows)

    def _flagged(self, arrays: Arrays, n_rows: int) -> tuple[Arrays, int]:
        flags: dict[str, npt.NDArray[np.bool_]] = {}
        for role, selections in zip(self._roles, self._selections, strict=True):
            if role.flag is not None:
                flags[role.flag] = self._passing(selections, arrays, n_rows)
        wanted = None
        if len(flags) == len(self._roles):
            wanted = np.logical_or.reduce(list(flags.values()))
        arrays = arrays | {name: pa.array(flag) for name, flag in flags.items()}
        if wanted is None or wanted.all():
            return arrays, n_rows
        return _filtered(arrays, wanted, self._needed)

    def _passing(
        self, selections: tuple[Expr, ...], arrays: Arrays, n_rows: int
    ) -> npt.NDArray[np.bool_]:
        """Which rows pass all selections, each evaluated on what the ones before it let through."""
        rows = np.arange(n_rows)
        for i, predicate in enumerate(selections):
            kept = keep(predicate, _reader(arrays), len(rows), self._functions)
            if kept is not None:
                rows = rows[kept]
                arrays, _ = _filtered(arrays, kept, _names(selections[i + 1 :]))
        passing = np.zeros(n_rows, dtype=np.bool_)
        passing[rows] = True
        return passing

    def _derived(self, name: str, expr: Expr, arrays: Arrays, n_rows: int) -> pa.Array:
        """A derived column: computed where a role that uses it wants the row, NULL elsewhere."""
        flags = []
        if len(self._roles) > 1:
            users = self._relation.derived_for[name]
            flags = [role.flag for role in self._roles if role.source_id in users]
        if not flags or None in flags:
            return evaluate(expr, _reader(arrays), n_rows, self._functions)
        wanted = np.logical_or.reduce([np.asarray(arrays[flag]) for flag in flags if flag])
        if wanted.all():
            return evaluate(expr, _reader(arrays), n_rows, self._functions)
        chosen, n_chosen = _filtered(arrays, wanted, _names([expr]))
        values = evaluate(expr, _reader(chosen), n_chosen, self._functions)
        return values.take(pa.array(np.cumsum(wanted) - 1, mask=~wanted))

    def _read(self, batch: pa.RecordBatch) -> Arrays:
        """The columns that the query reads, in their normal types."""
        schema = batch.schema
        if self._schema is None or not schema.equals(self._schema):
            return self._first_read(batch)
        return {name: batch.column(place) for name, place in self._places}

    def _first_read(self, batch: pa.RecordBatch) -> Arrays:
        """The same for a batch of another schema than the last; if nothing need be converted, batches
        like it are read without a look at names and types.
        """
        arrays: Arrays = {}
        places = []
        is_normal = True
        for field in self._relation.read:
            position = batch.schema.get_field_index(field.name)
            if position < 0:
                raise SourceError(
                    f"a batch of {self._relation.name!r} lacks column {field.name!r}; "
                    f"it has {', '.join(batch.schema.names)}"
                )
            array = batch.column(position)
            if array.type != field.type:
                array = self._converted(array, field)
                is_normal = False
            arrays[field.name] = array
            places.append((field.name, position))
        if is_normal:
            self._schema, self._places = batch.schema, places
        return arrays

    def _converted(self, array: pa.Array, field: pa.Field) -> pa.Array:
        try:
            if pa.types.is_dictionary(array.type):
                array = array.dictionary_decode()
            return pc.cast(array, field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SourceError(
                f"column {field.name!r} of {self._relation.name!r} came as {array.type}, "
                f"expected {field.type}: {error}"
            ) from error


def _reader(arrays: Mapping[str, pa.Array]) -> Callable[[Column], pa.Array]:
    def column(wanted: Column) -> pa.Array:
        return arrays[wanted.name]

    return column


def _names(exprs: Iterable[Expr]) -> set[str]:
    """The columns that some expression reads."""
    return {column.name for expr in exprs for column in columns_of(expr)}


def _filtered(
    arrays: Arrays, kept: npt.NDArray[np.bool_], needed: Container[str]
) -> tuple[Arrays, int]:
    """The rows set in `kept` of the arrays that are still needed, and how many there are."""
    mask = pa.array(kept)
    filtered = {name: array.filter(mask) for name, array in arrays.items() if name in needed}
    return filtered, int(np.count_nonzero(kept))
