"""What the user wants to see first: a predicate on one source, which may change while a query runs.

A preference changes no answer. Rows that fulfil it go first: what they need is looked up before what
others need, and it is looked up even where a scan would bring it some day (SteM-54).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from eddies.core.batch import Ids, RoutedBatch
from eddies.core.evaluate import keep, type_of
from eddies.core.expr import Column, Expr, columns_of
from eddies.core.graph import Graph
from eddies.core.query import UserFunction
from eddies.core.state.rows import RowStore
from eddies.errors import OptionError

__all__ = ["Preference"]

Mask = npt.NDArray[np.bool_]


class Preference:
    """`expr` over the stored columns of one source."""

    def __init__(self, graph: Graph, expr: Expr) -> None:
        names = {column.source for column in columns_of(expr)}
        ids = {role.name: role.source_id for role in graph.roles}
        if len(names) != 1 or not names <= set(ids):
            raise OptionError(
                "a preference must be a predicate on the columns of exactly one source of the query, "
                f"not of {', '.join(sorted(names)) or 'none'}"
            )
        self.source = ids[names.pop()]
        stored = graph.relation_of(self.source).stored
        for column in columns_of(expr):
            if column.name not in stored.names:
                raise OptionError(
                    f"a preference on {column.source}.{column.name} needs a column that the query "
                    "keeps: one that it joins on or returns"
                )
        found = type_of(expr, lambda column: stored.field(column.name).type, graph.functions)
        if str(found) != "bool":
            raise OptionError(f"a preference must be true or false, not a value of type {found}")
        self._expr = expr
        self._functions: Mapping[str, UserFunction] = graph.functions

    def holds(self, batch: RoutedBatch) -> Mask:
        """Which rows of a batch that spans the source are preferred."""
        kept = keep(self._expr, batch.column, batch.n_rows, self._functions)
        return np.ones(batch.n_rows, dtype=np.bool_) if kept is None else kept

    def holds_in(self, store: RowStore, rows: Ids) -> Mask:
        """Which of the stored rows are preferred."""

        def column(wanted: Column) -> object:
            return store.column(wanted.name).take(rows)

        kept = keep(self._expr, column, rows.shape[0], self._functions)
        return np.ones(rows.shape[0], dtype=np.bool_) if kept is None else kept
