"""Names: Spark's name for an unnamed SELECT item, unique names, and close matches for messages.

Spark calls `a.x + 1` "(x + 1)" and `COUNT(*)` "count(1)". Known limitation: the parser folds
synonyms (`nvl` into `coalesce`, `substr` into `substring`), so the name of such an unnamed item has
the folded function name; give the item an alias where the name matters.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from sqlglot import exp

from eddies.sql.parse import DIALECT

__all__ = ["Names", "did_you_mean", "spark_name"]

_OPERATORS: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.IntDiv: "div",
    exp.Mod: "%",
    exp.EQ: "=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
    exp.And: "AND",
    exp.Or: "OR",
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
}
_CAPITALS = {"floor", "ceil", "power", "sqrt", "exp", "ln", "sign"}  # as Spark writes them


def spark_name(node: exp.Expr) -> str:
    """The column name Spark gives to SELECT item `node` (written without alias)."""
    if isinstance(node, exp.Paren):
        return spark_name(node.this)
    if isinstance(node, exp.Column | exp.Dot):
        return node.name
    if isinstance(node, exp.Literal):
        return _literal_name(node)
    if isinstance(node, exp.Boolean):
        return "true" if node.this else "false"
    if isinstance(node, exp.Cast):
        return _cast_name(node)
    if type(node) in _OPERATORS:
        sides = spark_name(node.this), spark_name(node.expression)
        return f"({sides[0]} {_OPERATORS[type(node)]} {sides[1]})"
    if isinstance(node, exp.NEQ):
        return f"(NOT ({spark_name(node.this)} = {spark_name(node.expression)}))"
    if isinstance(node, exp.Neg):
        return _negative_name(node)
    if isinstance(node, exp.Not):
        return _not_name(node)
    if isinstance(node, exp.Is):
        return f"({spark_name(node.this)} IS {node.expression.sql(DIALECT)})"
    if isinstance(node, exp.In) and node.expressions:
        return f"({spark_name(node.this)} IN ({_listed(node.expressions)}))"
    if isinstance(node, exp.Between):
        return f"between({_listed([node.this, node.args['low'], node.args['high']])})"
    if isinstance(node, exp.Case):
        return _case_name(node)
    if isinstance(node, exp.If):
        return f"(IF({_listed([node.this, node.args['true'], node.args['false']])}))"
    if isinstance(node, exp.Like) and not node.args.get("negate"):
        return f"{spark_name(node.this)} LIKE {spark_name(node.expression)}"
    if isinstance(node, exp.Extract):
        return f"extract({node.name.lower()} FROM {spark_name(node.expression)})"
    if isinstance(node, exp.DPipe):
        return f"concat({_listed(list(node.flatten()))})"
    if isinstance(node, exp.Func):
        return _function_name(node)
    return node.sql(DIALECT)


def _listed(nodes: Iterable[exp.Expr]) -> str:
    return ", ".join(spark_name(node) for node in nodes)


def _literal_name(node: exp.Literal) -> str:
    text = str(node.this)
    return str(float(text)) if not node.is_string and "e" in text.lower() else text


def _negative_name(node: exp.Neg) -> str:
    inner = spark_name(node.this)
    return f"-{inner}" if isinstance(node.this, exp.Literal) else f"(- {inner})"


def _cast_name(node: exp.Cast) -> str:
    written = isinstance(node.this, exp.Literal)
    if written and node.is_type(exp.DType.DATE):
        return f"DATE '{node.this.name}'"
    if isinstance(node.this, exp.Column):
        return node.this.name
    return f"CAST({spark_name(node.this)} AS {node.to.sql(DIALECT)})"


def _not_name(node: exp.Not) -> str:
    inner = node.this.unnest()
    if isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null):
        return f"({spark_name(inner.this)} IS NOT NULL)"
    return f"(NOT {spark_name(inner)})"


def _case_name(node: exp.Case) -> str:
    parts = ["CASE"]
    for branch in node.args["ifs"]:
        condition = spark_name(branch.this)
        if node.this is not None:
            condition = f"({spark_name(node.this)} = {condition})"
        parts.append(f"WHEN {condition} THEN {spark_name(branch.args['true'])}")
    if node.args.get("default") is not None:
        parts.append(f"ELSE {spark_name(node.args['default'])}")
    return " ".join([*parts, "END"])


def _function_name(node: exp.Func) -> str:
    if isinstance(node, exp.Count) and isinstance(node.this, exp.Star):
        return "count(1)"
    name = node.name if isinstance(node, exp.Anonymous) else node.sql_name().lower()
    if isinstance(node.this, exp.Distinct):
        return f"{name}(DISTINCT {_listed(node.this.expressions)})"
    args: list[exp.Expr] = []
    for value in node.args.values():
        found = value if isinstance(value, list) else [value]
        args.extend(arg for arg in found if isinstance(arg, exp.Expr))
    inner = [arg.this if isinstance(arg, exp.TsOrDsToDate) else arg for arg in args]
    if isinstance(node, exp.Round) and len(inner) == 1:
        inner.append(exp.Literal.number(0))
    return f"{name.upper() if name in _CAPITALS else name}({_listed(inner)})"


class Names:
    """Hands out names that differ from each other and from `taken`, without regard to case."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = {name.lower() for name in taken}

    def unique(self, wanted: str) -> str:
        """`wanted`, or `wanted_2`, `wanted_3`, ... if that is taken."""
        name, number = wanted, 1
        while name.lower() in self._taken:
            number += 1
            name = f"{wanted}_{number}"
        self._taken.add(name.lower())
        return name


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint for a message: the closest known names, or the list of them if none is close."""
    spelled = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower(), spelled, n=3, cutoff=0.6)
    if close:
        return "did you mean " + " or ".join(repr(spelled[match]) for match in close) + "?"
    if not spelled:
        return "there are none"
    return (
        "known: " + ", ".join(sorted(spelled.values())[:12]) + ("..." if len(spelled) > 12 else "")
    )
