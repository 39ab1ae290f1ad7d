"""Qualified SQL expressions to typed core expressions, every cast written out.

`Lowering.lower` answers with the expression and its type, or raises `CannotLower` with the reason:
then the expression is not wrong, it only runs above, in Spark. What SQL itself forbids (a boolean
compared with a number, a predicate that is no boolean) is a `TypeMismatchError`.

One method per family of nodes, found by node class in the table at the end; named functions are in
`builtins`. A column is looked up by (source, name); sources have unique names after `qualify`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from sqlglot import exp

from eddies.core.expr import Call, Cast, Column, Expr, Literal
from eddies.core.functions.casting import castable
from eddies.core.query import UserFunction
from eddies.errors import TypeMismatchError
from eddies.sql.builtins import ANONYMOUS, BUILTINS, lower_builtin
from eddies.sql.coerce import arithmetic_result, common_type, common_type_of, operand_types
from eddies.sql.literals import cast_literal, literal, months_days_micros
from eddies.sql.parse import DIALECT
from eddies.sql.settings import DEFAULT, Settings, is_on_decimals, meet_alike, needs_ansi
from eddies.sql.typed import CannotLower, Typed
from eddies.sql.types import arrow_type, is_numeric, is_text, sql_name
from eddies.sql.zones import needs_zone

__all__ = ["Lowering"]

SQL_TYPES = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.date64(): pa.date32(),
}
TIMEZONE = "UTC"  # the zone the evaluator gives to Spark's TIMESTAMP
BOOL = pa.bool_()


class Lowering:
    """Lowers expressions over `types`: the columns of each source and their types."""

    def __init__(
        self,
        types: Mapping[str, Mapping[str, pa.DataType]],
        functions: Iterable[UserFunction] = (),
        settings: Settings = DEFAULT,
    ) -> None:
        self._types = types
        self._settings = settings
        self._functions = {function.name.lower(): function for function in functions}
        self.compared: dict[Expr, pa.DataType] = {}  # each comparison made: the type of its sides

    def lower(self, node: exp.Expr) -> Typed:
        """`node` as a typed expression; `CannotLower` when it has to run above."""
        if (constant := literal(node)) is not None:
            lowered = Typed(constant, constant.type)
        else:
            rule = RULES.get(type(node))
            if rule is None:
                raise CannotLower(f"{_shown(node)} is not computed in a block")
            lowered = rule(self, node)
        if self._settings != DEFAULT:
            self._check_settings(lowered.expr, node)
        return lowered

    def _check_settings(self, expr: Expr, node: exp.Expr) -> None:
        """Refuse what depends on the session's settings, in the expression or a part of it."""
        functions = {function.name: function for function in self._functions.values()}
        waiting = [expr]
        while waiting:
            part = waiting.pop()
            if not self._settings.in_utc and needs_zone(part, self._type_of_column, functions):
                raise CannotLower(f"{_shown(node)} depends on the session's time zone")
            if not self._settings.ansi and needs_ansi(part, self._type_of_column, functions):
                raise CannotLower(f"{_shown(node)} depends on spark.sql.ansi.enabled")
            may_lose = self._settings.gives_up_digits
            if not may_lose and is_on_decimals(part, self._type_of_column, functions):
                raise CannotLower(f"{_shown(node)} depends on decimalOperations.allowPrecisionLoss")
            if isinstance(part, Cast):
                waiting.append(part.arg)
            elif isinstance(part, Call):
                waiting.extend(part.args)

    def _type_of_column(self, column: Column) -> pa.DataType:
        return self._types[column.source][column.name]

    def _check_meeting(self, operands: Sequence[Typed], where: str) -> None:
        """Refuse operands of different kinds where Spark brings them to another type than we do.

        A literal that is read as a time means the same in both modes.
        """
        if self._settings.ansi:
            return
        times = any(pa.types.is_temporal(typed.type) for typed in operands)
        types = [t.type for t in operands if not (times and isinstance(t.expr, Literal))]
        if not meet_alike(types):
            raise CannotLower(f"{where} over different types depends on spark.sql.ansi.enabled")

    def predicate(self, node: exp.Expr) -> Expr:
        """`node` as a boolean expression."""
        lowered = self.lower(node)
        if pa.types.is_null(lowered.type):
            return Literal(None, BOOL)
        if not pa.types.is_boolean(lowered.type):
            raise TypeMismatchError(
                f"{_shown(node)} is a {sql_name(lowered.type)}: a condition has to be boolean"
            )
        return lowered.expr

    def cast(self, typed: Typed, target: pa.DataType) -> Expr:
        """`typed` as a value of `target`: itself, a converted constant, or a `Cast`."""
        if typed.type == target:
            return typed.expr
        if isinstance(typed.expr, Literal):
            if (converted := cast_literal(typed.expr, target)) is not None:
                return converted
            if is_text(typed.type) and pa.types.is_temporal(target):
                raise CannotLower(f"{typed.expr.value!r} is left to Spark to read as a time")
        if not castable(typed.type, target):
            raise CannotLower(
                f"no conversion from {sql_name(typed.type)} to {sql_name(target)} in a block"
            )
        return Cast(typed.expr, target)

    def alike(self, nodes: Sequence[exp.Expr], where: str) -> tuple[list[Expr], pa.DataType]:
        """`nodes` brought to their common type, as CASE, COALESCE and IN do."""
        lowered = [self._as_in_sql(self.lower(node)) for node in nodes]
        self._check_meeting(lowered, where)
        common = common_type_of([typed.type for typed in lowered])
        if common is None:
            kinds = ", ".join(sql_name(typed.type) for typed in lowered)
            raise CannotLower(f"no common type for {where} over {kinds}")
        return [self.cast(typed, common) for typed in lowered], common

    def _as_in_sql(self, typed: Typed) -> Typed:
        """Values of a type that SQL lacks as it reads them; unsigned integers in a larger type."""
        target = SQL_TYPES.get(typed.type)
        return typed if target is None else Typed(self.cast(typed, target), target)

    # -- one method per family of nodes ------------------------------------------------------------

    def _column(self, node: exp.Column) -> Typed:
        columns = self._types.get(node.table)
        if columns is None or node.name not in columns:
            raise CannotLower(f"{_shown(node)} is not a column of the block")
        type = columns[node.name]
        column = Column(node.table, node.name)
        if is_text(type) and type != pa.string():
            return Typed(self.cast(Typed(column, type), pa.string()), pa.string())
        return Typed(column, type)

    def _paren(self, node: exp.Paren) -> Typed:
        return self.lower(node.this)

    def _logical(self, node: exp.And | exp.Or) -> Typed:
        name = "and" if isinstance(node, exp.And) else "or"
        args = tuple(self.predicate(part) for part in node.flatten())
        return Typed(Call(name, args), BOOL)

    def _not(self, node: exp.Not) -> Typed:
        inner = node.this.unnest()
        if isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null):
            return Typed(Call("is_not_null", (self.lower(inner.this).expr,)), BOOL)
        return Typed(Call("not", (self.predicate(inner),)), BOOL)

    def _comparison(self, node: exp.Binary) -> Typed:
        return Typed(self.compare(COMPARISONS[type(node)], node.this, node.expression), BOOL)

    def compare(self, function: str, left: exp.Expr, right: exp.Expr) -> Expr:
        """`left` compared with `right` after both are brought to their common type."""
        if isinstance(left, exp.Tuple) or isinstance(right, exp.Tuple):
            raise CannotLower("comparisons of row values run above")
        a, b = self.lower(left), self.lower(right)
        if a.type != b.type:
            a, b = self._as_in_sql(a), self._as_in_sql(b)
        self._check_meeting((a, b), "a comparison")
        common = common_type(a.type, b.type, (_written(left, a), _written(right, b)))
        if common is None:
            plain = [t for t in (a.type, b.type) if is_numeric(t) or pa.types.is_boolean(t)]
            if len(plain) == 2 and any(pa.types.is_boolean(t) for t in plain):
                raise TypeMismatchError(
                    f"cannot compare {_shown(left)} ({sql_name(a.type)}) with {_shown(right)} "
                    f"({sql_name(b.type)}): cast one side to the type of the other"
                )
            raise CannotLower(f"no common type for {sql_name(a.type)} and {sql_name(b.type)}")
        if pa.types.is_null(common):
            return Literal(None, BOOL) if function != "null_safe_eq" else Literal(True, BOOL)
        if pa.types.is_nested(common):
            raise CannotLower(f"comparisons of {sql_name(common)} run above")
        call = Call(function, (self.cast(a, common), self.cast(b, common)))
        self.compared[call] = common
        return call

    def _distinct_from(self, node: exp.NullSafeNEQ) -> Typed:
        same = self.compare("null_safe_eq", node.this, node.expression)
        return Typed(Call("not", (same,)), BOOL)

    def _is(self, node: exp.Is) -> Typed:
        inner = self.lower(node.this)
        if isinstance(node.expression, exp.Null):
            return Typed(Call("is_null", (inner.expr,)), BOOL)
        if isinstance(node.expression, exp.Boolean) and pa.types.is_boolean(inner.type):
            wanted = Literal(bool(node.expression.this), BOOL)
            return Typed(Call("null_safe_eq", (inner.expr, wanted)), BOOL)
        raise CannotLower(f"{_shown(node)} runs above")

    def _between(self, node: exp.Between) -> Typed:
        if node.args.get("symmetric"):
            raise CannotLower("BETWEEN SYMMETRIC runs above")
        low = self.compare("ge", node.this, node.args["low"])
        return Typed(Call("and", (low, self.compare("le", node.this, node.args["high"]))), BOOL)

    def _in(self, node: exp.In) -> Typed:
        if not node.expressions or node.args.get("query") or isinstance(node.this, exp.Tuple):
            raise CannotLower("IN over a subquery or row values runs above")
        args, common = self.alike([node.this, *node.expressions], "IN")
        if pa.types.is_null(common) or pa.types.is_nested(common):
            raise CannotLower(f"IN over {sql_name(common)} runs above")
        if all(isinstance(arg, Literal) for arg in args[1:]):
            return Typed(Call("in_list", tuple(args)), BOOL)
        equal: list[Expr] = [Call("eq", (args[0], arg)) for arg in args[1:]]
        self.compared.update(dict.fromkeys(equal, common))
        return Typed(equal[0] if len(equal) == 1 else Call("or", tuple(equal)), BOOL)

    def _arithmetic(self, node: exp.Binary) -> Typed:
        function = ARITHMETIC[type(node)]
        shift = months_days_micros(node.expression.unnest())
        if shift is not None and function in ("add", "subtract"):
            return self._shift(node.this, shift, 1 if function == "add" else -1)
        a, b = self._as_in_sql(self.lower(node.this)), self._as_in_sql(self.lower(node.expression))
        self._check_meeting((a, b), _shown(node))
        values = (_written(node.this, a), _written(node.expression, b))
        types = operand_types(function, a.type, b.type, values)
        if types is None:
            return self._date_arithmetic(function, a, b, node)
        result = arithmetic_result(function, *types)
        if result is None or pa.types.is_null(result):
            raise CannotLower(f"{_shown(node)} runs above")
        return Typed(Call(function, (self.cast(a, types[0]), self.cast(b, types[1]))), result)

    def _date_arithmetic(self, function: str, a: Typed, b: Typed, node: exp.Expr) -> Typed:
        days = b.type in (pa.int8(), pa.int16(), pa.int32())
        if pa.types.is_date32(a.type) and days and function in ("add", "subtract"):
            name = "date_add" if function == "add" else "date_sub"
            return Typed(Call(name, (a.expr, self.cast(b, pa.int32()))), a.type)
        raise CannotLower(f"{_shown(node)}: no arithmetic on these types in a block")

    def _shift(self, node: exp.Expr, shift: tuple[int, int, int], sign: int) -> Typed:
        months, days, micros = (sign * part for part in shift)
        moment = self.lower(node)
        if is_text(moment.type) or (pa.types.is_date32(moment.type) and micros):
            raise CannotLower("this interval arithmetic runs above")
        if not (pa.types.is_date32(moment.type) or pa.types.is_timestamp(moment.type)):
            raise CannotLower(f"no interval is added to {sql_name(moment.type)}")
        if max(abs(months), abs(days)) >= 2**31:
            raise CannotLower("the interval is too long for a block")
        parts = (
            Literal(months, pa.int32()),
            Literal(days, pa.int32()),
            Literal(micros, pa.int64()),
        )
        return Typed(Call("add_interval", (moment.expr, *parts)), moment.type)

    def _negate(self, node: exp.Neg) -> Typed:
        inner = self.lower(node.this)
        if isinstance(node.this, exp.Literal) and isinstance(inner.expr, Literal):
            return self._negative_literal(node.this, inner)
        if not is_numeric(inner.type):
            raise CannotLower(f"{_shown(node)} runs above")
        return Typed(Call("negate", (inner.expr,)), inner.type)

    def _negative_literal(self, node: exp.Literal, inner: Typed) -> Typed:
        value = inner.value
        if node.is_string or value is None:
            raise CannotLower(f"-{_shown(node)} runs above")
        # -2147483648 is an int and -9223372036854775808 a bigint, though their digits are not.
        type = inner.type
        if node.name.isdigit():
            type = {2**31: pa.int32(), 2**63: pa.int64()}.get(value, type)  # type: ignore[call-overload]
        if pa.types.is_integer(type):
            value = int(value)  # type: ignore[call-overload]
        return Typed(Literal(-value, type), type)  # type: ignore[operator]

    def _cast(self, node: exp.Cast) -> Typed:
        target = arrow_type(node.to, TIMEZONE)
        if target is None or node.args.get("format"):
            raise CannotLower(f"a cast to {node.to.sql(DIALECT)} runs above")
        inner, lenient = self.lower(node.this), bool(node.args.get("safe"))
        if not lenient or inner.type == target:
            return Typed(self.cast(inner, target), target)
        if not castable(inner.type, target):
            raise CannotLower(f"no cast from {sql_name(inner.type)} in a block")
        return Typed(Cast(inner.expr, target, lenient=True), target)

    def _case(self, node: exp.Case) -> Typed:
        branches = node.args["ifs"]
        values = [branch.args["true"] for branch in branches]
        default = node.args.get("default") or exp.Null()
        results, type = self.alike([*values, default], "CASE")
        args: list[Expr] = []
        for branch, result in zip(branches, results, strict=False):
            if node.this is None:
                args.append(self.predicate(branch.this))
            else:
                args.append(self.compare("eq", node.this, branch.this))
            args.append(result)
        return Typed(Call("case", (*args, results[-1])), type)

    def _if(self, node: exp.If) -> Typed:
        default = node.args.get("false") or exp.Null()
        results, type = self.alike([node.args["true"], default], "IF")
        return Typed(Call("if", (self.predicate(node.this), *results)), type)

    def _named(self, node: exp.Anonymous) -> Typed:
        function = self._functions.get(node.name.lower())
        if function is None:
            if node.name.lower() in ("isnull", "isnotnull") and len(node.expressions) == 1:
                test = "is_null" if node.name.lower() == "isnull" else "is_not_null"
                return Typed(Call(test, (self.lower(node.expressions[0]).expr,)), BOOL)
            rule = ANONYMOUS.get(node.name.lower())
            if rule is None:
                raise CannotLower(f"function {node.name} is not one that blocks compute")
            return lower_builtin(self, rule, list(node.expressions))
        args = tuple(self.lower(arg).expr for arg in node.expressions)
        return Typed(Call(function.name, args), function.returns)


def _shown(node: exp.Expr) -> str:
    return node.sql(DIALECT)


def _written(node: exp.Expr, typed: Typed) -> object:
    """The value of a literal in the text: Spark counts its digits, not those of CAST(2 AS INT)."""
    node = node.unnest()
    node = node.this if isinstance(node, exp.Neg) else node
    return typed.value if isinstance(node, exp.Literal) else None


COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "eq",
    exp.NEQ: "ne",
    exp.LT: "lt",
    exp.LTE: "le",
    exp.GT: "gt",
    exp.GTE: "ge",
    exp.NullSafeEQ: "null_safe_eq",
}
ARITHMETIC: dict[type[exp.Expr], str] = {
    exp.Add: "add",
    exp.Sub: "subtract",
    exp.Mul: "multiply",
    exp.Div: "divide",
    exp.IntDiv: "int_divide",
    exp.Mod: "modulo",
}
# A rule takes the node class it is listed under, which a dict type cannot say: hence Any.
RULES: dict[type[exp.Expr], Callable[[Lowering, Any], Typed]] = {
    **dict.fromkeys(BUILTINS, lambda lowering, node: BUILTINS[type(node)](lowering, node)),
    **dict.fromkeys(COMPARISONS, Lowering._comparison),
    **dict.fromkeys(ARITHMETIC, Lowering._arithmetic),
    exp.Column: Lowering._column,
    exp.Paren: Lowering._paren,
    exp.And: Lowering._logical,
    exp.Or: Lowering._logical,
    exp.Not: Lowering._not,
    exp.NullSafeNEQ: Lowering._distinct_from,
    exp.Is: Lowering._is,
    exp.Between: Lowering._between,
    exp.In: Lowering._in,
    exp.Neg: Lowering._negate,
    exp.Cast: Lowering._cast,
    exp.TryCast: Lowering._cast,
    exp.Case: Lowering._case,
    exp.If: Lowering._if,
    exp.Anonymous: Lowering._named,
}
