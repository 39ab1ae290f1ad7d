"""Computing expressions on Arrow arrays.

Three questions are answered here. `type_of`, at planning time: is this expression well typed, and
what does it give? Everything that can be wrong without looking at a row is reported there.
`evaluate`: its value on every row of a batch. `keep`: the rows for which a predicate is true.

All work is vectorised, one kernel call per node of the expression. Constants stay Arrow scalars
until the end. SQL's lazy constructs (AND, OR, CASE, IF, COALESCE) promise that a part is not
evaluated on rows that do not reach it; a vectorised engine keeps the promise where it can be
observed: a part is tried on all rows, and if that fails (or it calls a user function, which may be
slow) it is evaluated again on exactly the rows that reach it.

The functions are in `eddies.core.functions`, which lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as kinds

from eddies.core.expr import Call, Cast, Column, Expr, Literal, conjuncts
from eddies.core.functions import FUNCTIONS, castable
from eddies.core.functions.casting import convert
from eddies.core.functions.rendering import render
from eddies.core.functions.signature import Mask, Refusal, Value, truth
from eddies.core.functions.user import call_user_function
from eddies.core.query import UserFunction
from eddies.errors import EvaluationError, TypeMismatchError, UnknownNameError, UnsupportedError

__all__ = ["Shared", "evaluate", "keep", "render", "shared_parts", "type_of"]

ColumnOf = Callable[[Column], pa.Array]
Functions = Mapping[str, UserFunction]
Shared = dict[Expr, Value | None]
"""Parts that several expressions have in common, and their values on the rows at hand, once known."""

# Below this share of surviving rows the next conjunct is computed on those rows only: gathering a
# column then costs less than a string or decimal kernel on all rows.
_NARROW_BELOW = 0.25


def type_of(
    expr: Expr, schema_of: Callable[[Column], pa.DataType], functions: Functions
) -> pa.DataType:
    """The type of `expr`. What `schema_of` raises for an unknown column is passed on.

    Raises `TypeMismatchError`, `UnknownNameError` or `UnsupportedError` with the text of the
    expression at fault.
    """
    match expr:
        case Column():
            return schema_of(expr)
        case Literal(value=value, type=type_):
            _check_literal(value, type_)
            return type_
        case Cast(arg=arg, type=type_):
            source = type_of(arg, schema_of, functions)
            if not castable(source, type_):
                raise UnsupportedError(f"{render(expr)}: no cast from {source} to {type_}")
            return type_
        case Call(function=name, args=args):
            types = [type_of(arg, schema_of, functions) for arg in args]
            if name in functions:
                return functions[name].returns
            if name not in FUNCTIONS:
                raise UnknownNameError(
                    f"{render(expr)}: there is no function {name}; register it, or see the list in "
                    "eddies.core.functions"
                )
            return _call_type(expr, types)


def _check_literal(value: object, type_: pa.DataType) -> None:
    try:
        pa.scalar(value, type_)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise TypeMismatchError(f"literal {value!r} is not a {type_}: {error}") from error


def _call_type(call: Call, types: list[pa.DataType]) -> pa.DataType:
    function = FUNCTIONS[call.function]
    try:
        result = function.result(types, call.args)
    except TypeMismatchError as error:
        raise TypeMismatchError(f"{render(call)}: {error}") from error
    if result is None:
        given = ", ".join(map(str, types))
        raise TypeMismatchError(
            f"{render(call)}: {call.function} takes {function.accepts}, not ({given})"
        )
    return result


def evaluate(
    expr: Expr,
    column: ColumnOf,
    n_rows: int,
    functions: Functions,
    shared: Shared | None = None,
) -> pa.Array:
    """The value of `expr` on each of `n_rows` rows. `type_of` must accept the expression.

    `column` gives the array of a column, of length `n_rows` and any offset. Of expressions that are
    evaluated on the same rows `shared` keeps the parts they have in common. Raises `EvaluationError`
    naming the part that failed.
    """
    value = _Rows(column, n_rows, functions, shared or {}).value(expr)
    return pa.repeat(value, n_rows) if isinstance(value, pa.Scalar) else value


def shared_parts(exprs: Iterable[Expr]) -> frozenset[Expr]:
    """The calls that occur more than once in all of `exprs`, but for parts of others that do."""
    seen: set[Expr] = set()
    found: set[Expr] = set()

    def visit(part: Expr) -> None:
        if isinstance(part, Call):
            if part in seen:
                found.add(part)
                return
            seen.add(part)
            for arg in part.args:
                visit(arg)
        elif isinstance(part, Cast):
            visit(part.arg)

    for expr in exprs:
        visit(expr)
    return frozenset(found)


def keep(expr: Expr, column: ColumnOf, n_rows: int, functions: Functions) -> Mask | None:
    """bool[n_rows]: the rows where `expr` is true (not false, not NULL); None if all are.

    Conjuncts are taken left to right. One that fails on rows already dropped does not fail.
    """
    rows = _Rows(column, n_rows, functions)
    mask: Mask | None = None
    n_kept = n_rows
    for part in conjuncts(expr):
        if n_kept == 0:
            break
        holds = rows.truth(part) if mask is None else _truth_among(rows, part, mask, n_kept)
        n_holding = int(np.count_nonzero(holds))
        if mask is None:
            mask, n_kept = (None, n_kept) if n_holding == n_rows else (holds, n_holding)
        else:
            mask = mask & holds
            n_kept = int(np.count_nonzero(mask))
    return mask


def _truth_among(rows: _Rows, part: Expr, mask: Mask, n_kept: int) -> Mask:
    """Truth of `part` where `mask` is set; false or arbitrary elsewhere."""
    if n_kept >= _NARROW_BELOW * rows.n_rows and not _calls_user(part, rows.functions):
        try:
            return rows.truth(part)
        except EvaluationError:
            pass  # perhaps only because of rows that are dropped already: ask about the others
    holds = np.zeros(rows.n_rows, np.bool_)
    holds[mask] = rows.narrowed(mask).truth(part)
    return holds


def _calls_user(expr: Expr, functions: Functions) -> bool:
    match expr:
        case Call(function=name, args=args):
            return name in functions or any(_calls_user(arg, functions) for arg in args)
        case Cast(arg=arg):
            return _calls_user(arg, functions)
    return False


@dataclass(slots=True)
class _Rows:
    """Rows to compute on: all of a batch, or those of it that reach some branch."""

    column: ColumnOf
    n_rows: int
    functions: Functions
    shared: Shared = field(default_factory=dict)

    def value(self, expr: Expr) -> Value:
        match expr:
            case Column():
                return _tolerated(self.column(expr))
            case Literal(value=value, type=type_):
                return pa.scalar(value, type_)
            case Cast(arg=arg, type=type_, lenient=lenient):
                given = self.value(arg)
                try:
                    return convert(given, type_, lenient)
                except (Refusal, pa.ArrowInvalid, OverflowError) as error:
                    raise _failure(expr, error) from error
            case Call():
                if not self.shared or expr not in self.shared:
                    return self._call(expr)
                known = self.shared[expr]
                if known is None:
                    known = self.shared[expr] = self._call(expr)
                return known

    def _call(self, call: Call) -> Value:
        if call.function in self.functions:
            user_function = self.functions[call.function]
            return call_user_function(
                user_function, [self.value(arg) for arg in call.args], self.n_rows
            )
        function = FUNCTIONS[call.function]
        if function.lazy:
            return function.kernel(*[_Part(self, arg) for arg in call.args])
        values = [self.value(arg) for arg in call.args]
        try:
            return function.kernel(*values)
        except (Refusal, pa.ArrowInvalid, OverflowError) as error:
            raise _failure(call, error) from error

    def truth(self, expr: Expr) -> Mask:
        return truth(self.value(expr), self.n_rows)

    def narrowed(self, mask: Mask) -> _Rows:
        """The rows set in `mask`; columns are gathered when first asked for."""
        chosen = pa.array(np.flatnonzero(mask))
        gathered: dict[Column, pa.Array] = {}

        def column(wanted: Column) -> pa.Array:
            if wanted not in gathered:
                gathered[wanted] = self.column(wanted).take(chosen)
            return gathered[wanted]

        return _Rows(column, len(chosen), self.functions)


@dataclass(slots=True)
class _Part:
    """An argument of a lazy function (the `Argument` protocol)."""

    rows: _Rows
    expr: Expr
    n_rows: int = field(init=False)

    def __post_init__(self) -> None:
        self.n_rows = self.rows.n_rows

    def everywhere(self) -> Value:
        return self.rows.value(self.expr)

    def where(self, rows: Callable[[], Mask]) -> Value:
        if not _calls_user(self.expr, self.rows.functions):
            try:
                return self.everywhere()
            except EvaluationError:
                pass  # perhaps only because of rows that do not count: ask about the others
        mask = rows()
        value = self.rows.narrowed(mask).value(self.expr)
        return value if isinstance(value, pa.Scalar) else _scattered(value, mask)


def _scattered(value: pa.Array, mask: Mask) -> pa.Array:
    """`value` put on the rows set in `mask`, NULL on the others."""
    position: npt.NDArray[np.int64] = np.cumsum(mask) - 1
    return value.take(pa.array(position, mask=~mask))


def _tolerated(array: pa.Array) -> pa.Array:
    """Dictionaries and string views, which few kernels take, as plain text or bytes."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if kinds.is_dictionary(array.type):
        array = array.dictionary_decode()
    if kinds.is_string_view(array.type) or kinds.is_large_string(array.type):
        return array.cast(pa.string())
    if kinds.is_binary_view(array.type) or kinds.is_large_binary(array.type):
        return array.cast(pa.binary())
    return array


def _failure(expr: Expr, error: Exception) -> EvaluationError:
    reason = str(error)
    for arrow_text, meaning in _MEANINGS.items():
        if arrow_text in reason.lower():
            reason = meaning
            break
    return EvaluationError(f"{render(expr)}: {reason}")


_MEANINGS = {
    "divide by zero": "division by zero; guard it with nullif or CASE",
    "does not fit in precision": "the decimal result has too many digits for its type",
    "out of bounds": "the result is beyond the range of its type",
    "overflow": "the result is beyond the range of its type",
    "invalid utf8": "the bytes are not valid UTF-8 text",
}
