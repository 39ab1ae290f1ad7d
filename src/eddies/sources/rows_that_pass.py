"""Predicates applied by a reader, row by row of what it decoded, before others see the rows.

The eddy applies the same predicates again, in the query's order, and it alone reports their errors. So
the filter may leave out what it cannot decide: conjuncts that call user functions, and conjuncts that
fail on some row (which an earlier conjunct might drop).

A conjunct over one text column that comes as a dictionary is evaluated on the dictionary: once for
each word, not for each row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddies.core.evaluate import evaluate, keep
from eddies.core.expr import Call, Cast, Column, Expr, columns_of, conjuncts
from eddies.core.functions import FUNCTIONS
from eddies.core.functions.signature import Mask
from eddies.errors import EddiesError

__all__ = ["RowFilter"]

# With a larger share of rows passing, filtering costs more than it saves whoever filters again.
_FILTER_BELOW = 0.9


class RowFilter:
    """The conjuncts of `where` that a reader can apply if it has the columns `names`."""

    def __init__(self, where: tuple[Expr, ...], names: frozenset[str]) -> None:
        self._conjuncts = [
            (part, frozenset(column.name for column in columns_of(part)))
            for expr in where
            for part in conjuncts(expr)
            if all(function in FUNCTIONS for function in _functions(part))
        ]
        self._conjuncts = [(part, used) for part, used in self._conjuncts if used and used <= names]
        self.columns = frozenset(name for _, used in self._conjuncts for name in used)

    def mask(self, array: Callable[[str], pa.Array], n_rows: int) -> Mask | None:
        """bool[n_rows], false only for rows that do not pass; None if it is not worth filtering.

        `array` gives the delivered column of a name, or a dictionary array of it.
        """
        found: Mask | None = None
        for part, used in self._conjuncts:
            holds = _holds(part, used, array, n_rows)
            if holds is not None:
                found = holds if found is None else found & holds
        if found is None or np.count_nonzero(found) >= _FILTER_BELOW * n_rows:
            return None
        return found


def _functions(expr: Expr) -> Iterator[str]:
    match expr:
        case Call(function=function, args=args):
            yield function
            for arg in args:
                yield from _functions(arg)
        case Cast(arg=arg):
            yield from _functions(arg)


def _holds(
    part: Expr, used: frozenset[str], array: Callable[[str], pa.Array], n_rows: int
) -> Mask | None:
    """Where `part` is true; None if everywhere, or if it cannot be told."""
    arrays = {name: array(name) for name in used}
    try:
        if len(arrays) == 1:
            (only,) = arrays.values()
            if pa.types.is_dictionary(only.type) and len(only.dictionary) < n_rows:
                return _holds_by_word(part, only)
        plain = {
            name: column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
            for name, column in arrays.items()
        }
        return keep(part, lambda column: plain[column.name], n_rows, {})
    except EddiesError:
        return None


def _holds_by_word(part: Expr, column: pa.DictionaryArray) -> Mask:
    words = pa.concat_arrays([column.dictionary, pa.nulls(1, column.dictionary.type)])
    n_words = len(words)

    def word(wanted: Column) -> pa.Array:
        return words

    truths = pc.fill_null(evaluate(part, word, n_words, {}), False)
    codes = pc.fill_null(column.indices, n_words - 1)
    holds: Mask = np.asarray(truths)[np.asarray(codes)]
    return holds
