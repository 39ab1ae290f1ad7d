"""The way in: from an Arrow batch to a block of rows the eddy can route.

Takes the columns the query needs, brings them to their normal types, applies the cheap selections and
computes derived key columns. Selections of one source are applied in the order of the text and each
only sees rows that passed those before it, so `x <> 0 AND 10 / x > 1` does not divide by zero.

For a relation with several roles a row is kept if any role wants it, and a flag column per role says
which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eddies.core.evaluate import evaluate, keep
from eddies.core.expr import Column
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

    def admit(self, batch: pa.RecordBatch) -> Block:
        """The rows of `batch` that some role wants, with derived columns and role flags."""
        arrays = self._read(batch)
        n_rows = batch.num_rows
        if len(self._roles) == 1:
            for predicate in self._roles[0].selections:
                kept = keep(predicate, _reader(arrays), n_rows, self._functions)
                if kept is not None:
                    arrays, n_rows = _filtered(arrays, kept)
        else:
            arrays, n_rows = self._flagged(arrays, n_rows)
        for name, expr in self._relation.derived:
            arrays[name] = evaluate(expr, _reader(arrays), n_rows, self._functions)
        return Block.from_arrow(
            {name: arrays[name] for name in self._relation.stored.names}, n_rows
        )

    def _flagged(self, arrays: Arrays, n_rows: int) -> tuple[Arrays, int]:
        flags: dict[str, npt.NDArray[np.bool_]] = {}
        for role in self._roles:
            if role.flag is not None:
                flags[role.flag] = self._passing(role.selections, arrays, n_rows)
        wanted = None
        if len(flags) == len(self._roles):
            wanted = np.logical_or.reduce(list(flags.values()))
        arrays = arrays | {name: pa.array(flag) for name, flag in flags.items()}
        if wanted is None or wanted.all():
            return arrays, n_rows
        return _filtered(arrays, wanted)

    def _passing(
        self, selections: tuple[object, ...], arrays: Arrays, n_rows: int
    ) -> npt.NDArray[np.bool_]:
        """Which rows pass all selections, each evaluated on what the ones before it let through."""
        rows = np.arange(n_rows)
        for predicate in selections:
            kept = keep(predicate, _reader(arrays), len(rows), self._functions)  # type: ignore[arg-type]
            if kept is not None:
                rows = rows[kept]
                arrays, _ = _filtered(arrays, kept)
        passing = np.zeros(n_rows, dtype=np.bool_)
        passing[rows] = True
        return passing

    def _read(self, batch: pa.RecordBatch) -> Arrays:
        arrays: Arrays = {}
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
            arrays[field.name] = array
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


def _filtered(arrays: Arrays, kept: npt.NDArray[np.bool_]) -> tuple[Arrays, int]:
    mask = pa.array(kept)
    return {name: array.filter(mask) for name, array in arrays.items()}, int(kept.sum())
