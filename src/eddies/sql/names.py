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
_CAPITALS = {"floor", "ceil", "power", "sqrt", "exp", "ln"}  # as Spark writes them


def spark_name(item: exp.Expr) -> str:
    """The column name Spark gives to SELECT item `item` (written without alias)."""
    item = item.unnest()
    if isinstance(item, exp.Cast) and isinstance(item.this, exp.Column):
        return item.this.name
    return _named(item)


def _named(node: exp.Expr) -> str:
    if isinstance(node, exp.Paren):
        return _named(node.this)
    if isinstance(node, exp.Column | exp.Dot):
        return node.name
    if isinstance(node, exp.Literal):
        return _literal_name(node)
    if isinstance(node, exp.Boolean):
        return "true" if node.this else "false"
    if isinstance(node, exp.Cast):
        return _cast_name(node)
    if type(node) in _OPERATORS:
        sides = _named(node.this), _named(node.expression)
        return f"({sides[0]} {_OPERATORS[type(node)]} {sides[1]})"
    if isinstance(node, exp.NEQ):
        return f"(NOT ({_named(node.this)} = {_named(node.expression)}))"
    if isinstance(node, exp.Neg):
        return _negative_name(node)
    if isinstance(node, exp.Not):
        return _not_name(node)
    if isinstance(node, exp.Is):
        return f"({_named(node.this)} IS {node.expression.sql(DIALECT)})"
    if isinstance(node, exp.In) and node.expressions:
        return f"({_named(node.this)} IN ({_listed(node.expressions)}))"
    if isinstance(node, exp.Between):
        return f"between({_listed([node.this, node.args['low'], node.args['high']])})"
    if isinstance(node, exp.Case):
        return _case_name(node)
    if isinstance(node, exp.If):
        return f"(IF({_listed([node.this, node.args['true'], node.args['false']])}))"
    if isinstance(node, exp.Like) and not node.args.get("negate"):
        return f"{_named(node.this)} LIKE {_named(node.expression)}"
    if isinstance(node, exp.Extract):
        return f"extract({node.name.lower()} FROM {_named(node.expression)})"
    if isinstance(node, exp.DPipe):
        return f"concat({_listed(list(node.flatten()))})"
    if isinstance(node, exp.Func):
        return _function_name(node)
    return node.sql(DIALECT)


def _listed(nodes: Iterable[exp.Expr]) -> str:
    return ", ".join(_named(node) for node in nodes)


def _literal_name(node: exp.Literal) -> str:
    text = str(node.this)
    return str(float(text)) if not node.is_string and "e" in text.lower() else text


def _negative_name(node: exp.Neg) -> str:
    inner = _named(node.this)
    return f"-{inner}" if isinstance(node.this, exp.Literal) else f"(- {inner})"


def _cast_name(node: exp.Cast) -> str:
    target = node.to.sql(DIALECT)
    # `DATE '...'` is read as a Cast, CAST(...) as its subclass TryCast.
    if type(node) is exp.Cast and isinstance(node.this, exp.Literal) and node.this.is_string:
        return f"{target} '{node.this.name}'"
    return f"CAST({_named(node.this)} AS {target.replace(', ', ',')})"


def _not_name(node: exp.Not) -> str:
    inner = node.this.unnest()
    if isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null):
        return f"({_named(inner.this)} IS NOT NULL)"
    return f"(NOT {_named(inner)})"


def _case_name(node: exp.Case) -> str:
    parts = ["CASE"]
    for branch in node.args["ifs"]:
        condition = _named(branch.this)
        if node.this is not None:
            condition = f"({_named(node.this)} = {condition})"
        parts.append(f"WHEN {condition} THEN {_named(branch.args['true'])}")
    if node.args.get("default") is not None:
        parts.append(f"ELSE {_named(node.args['default'])}")
    return " ".join([*parts, "END"])


def _function_name(node: exp.Func) -> str:
    if isinstance(node, exp.Count) and isinstance(node.this, exp.Star):
        return "count(1)"
    name = node.name if isinstance(node, exp.Anonymous) else _spark_function(node)
    if isinstance(node.this, exp.Distinct):
        return f"{name}(DISTINCT {_listed(node.this.expressions)})"
    args: list[exp.Expr] = []
    for value in node.args.values():
        found = value if isinstance(value, list) else [value]
        args.extend(arg for arg in found if isinstance(arg, exp.Expr))
    inner = [arg.this if isinstance(arg, exp.TsOrDsToDate) else arg for arg in args]
    if isinstance(node, exp.TsOrDsAdd | exp.DateTrunc):
        inner = [node.this, *(arg for arg in inner if arg is not node.this)][:2]
    if isinstance(node, exp.Round) and len(inner) == 1:
        inner.append(exp.Literal.number(0))
    return f"{name.upper() if name in _CAPITALS else name}({_listed(inner)})"


def _spark_function(node: exp.Func) -> str:
    written = node.sql(DIALECT).partition("(")[0]
    return written.lower() if written.isidentifier() else node.sql_name().lower()


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
