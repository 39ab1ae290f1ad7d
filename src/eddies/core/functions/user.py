"""Calling functions that users registered.

An Arrow function gets arrays of one length and must return an array (or chunked array) of the
declared type and the same length. A plain function gets Python values, one row a call, None for
NULL. Whatever goes wrong is an `EvaluationError` that names the function and, for plain ones, the
row's arguments.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from eddies.core.functions.signature import Value
from eddies.core.query import UserFunction
from eddies.errors import EvaluationError

__all__ = ["call_user_function"]


def call_user_function(function: UserFunction, args: Sequence[Value], n_rows: int) -> pa.Array:
    """The function's values on all rows. It is not called when there are none."""
    if n_rows == 0:
        return pa.array([], function.returns)
    columns = [pa.repeat(arg, n_rows) if isinstance(arg, pa.Scalar) else arg for arg in args]
    return (_call_arrow if function.arrow else _call_plain)(function, columns, n_rows)


def _call_arrow(function: UserFunction, columns: list[pa.Array], n_rows: int) -> pa.Array:
    try:
        result = function.function(*columns)
    except Exception as error:  # user code may raise anything; it is passed on as the cause
        raise EvaluationError(
            f"user function {function.name} failed: {type(error).__name__}: {error}"
        ) from error
    if isinstance(result, pa.ChunkedArray):
        result = result.combine_chunks()
    if not isinstance(result, pa.Array):
        raise EvaluationError(
            f"user function {function.name} must return a pyarrow.Array, "
            f"not {type(result).__name__}"
        )
    if result.type != function.returns:
        raise EvaluationError(
            f"user function {function.name} is declared to return {function.returns} "
            f"but returned {result.type}; cast inside the function or change the declaration"
        )
    if len(result) != n_rows:
        raise EvaluationError(
            f"user function {function.name} returned {len(result)} values for {n_rows} rows"
        )
    return result


def _call_plain(function: UserFunction, columns: list[pa.Array], n_rows: int) -> pa.Array:
    rows = zip(*(column.to_pylist() for column in columns), strict=True) if columns else None
    results: list[object] = []
    for row in rows if rows is not None else [()] * n_rows:
        try:
            results.append(function.function(*row))
        except Exception as error:  # user code may raise anything; it is passed on as the cause
            shown = ", ".join(map(repr, row))
            raise EvaluationError(
                f"user function {function.name}({shown}) failed: {type(error).__name__}: {error}"
            ) from error
    try:
        return pa.array(results, function.returns)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise EvaluationError(
            f"user function {function.name} is declared to return {function.returns}, "
            f"but a value it returned does not fit: {error}"
        ) from error
