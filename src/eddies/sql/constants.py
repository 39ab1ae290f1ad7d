"""Expressions without columns, computed at planning time by the engine's own evaluator."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from sqlglot import exp

from eddies.core.evaluate import evaluate
from eddies.core.expr import Column, Expr
from eddies.errors import EvaluationError
from eddies.sql.coerce import common_type_of
from eddies.sql.lower import Lowering
from eddies.sql.plain import is_plain
from eddies.sql.settings import DEFAULT, Settings
from eddies.sql.typed import CannotLower

__all__ = ["constant_rows", "constant_table", "truth"]


def _no_columns(column: Column) -> pa.Array:
    raise AssertionError(f"{column} in a constant expression")


def truth(predicate: Expr) -> bool | None:
    """Whether a predicate without columns holds (NULL does not); None if evaluating it fails."""
    try:
        return evaluate(predicate, _no_columns, 1, {})[0].as_py() is True
    except EvaluationError:
        return None


def constant_table(
    names: Sequence[str], rows: Sequence[Sequence[exp.Expr]], settings: Settings = DEFAULT
) -> pa.Table | None:
    """A table of constants, columns typed as Spark types VALUES; None if Spark has to make it."""
    if any(len(row) != len(names) for row in rows):
        return None
    lowering = Lowering({}, settings=settings)
    columns = []
    try:
        for position in range(len(names)):
            cells = [lowering.lower(row[position]) for row in rows]
            type = common_type_of([cell.type for cell in cells])
            if type is None:
                return None
            values = [
                evaluate(lowering.cast(cell, type), _no_columns, 1, {})[0].as_py() for cell in cells
            ]
            columns.append(pa.array(values, type))
    except (CannotLower, EvaluationError):
        return None
    return pa.Table.from_arrays(columns, names=list(names))


def constant_rows(item: exp.Expr) -> tuple[list[str], list[list[exp.Expr]]] | None:
    """Column names and cells of VALUES, or of a SELECT without FROM; None for anything else."""
    label = item.args.get("alias")
    names = [part.name for part in (label.args.get("columns") or ())] if label else []
    if isinstance(item, exp.Values):
        rows = [list(r.expressions) if isinstance(r, exp.Tuple) else [r] for r in item.expressions]
        return names or [f"col{n + 1}" for n in range(len(rows[0]))], rows
    query = item.this if isinstance(item, exp.Subquery) else item
    if not isinstance(query, exp.Select) or query.args.get("from_") or not is_plain(query):
        return None
    if query.args.get("where"):
        return None
    cells = [cell.unalias() for cell in query.expressions]
    return names or [cell.alias for cell in query.expressions], [cells]
