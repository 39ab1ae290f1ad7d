"""A SELECT that aggregates a block, as partial aggregates in the block and their merge above.

`aggregate_partially` answers with the block's `Aggregation` and the SELECT over its rows, or None
when some part of the SELECT needs the rows of the join themselves: then all of it runs above. The
group keys become columns of the block, and so does every partial aggregate (`merge`); what remains
of the SELECT (HAVING, ORDER BY, arithmetic on aggregates, window functions) is left as it was.

If every aggregate is DISTINCT, least or greatest, duplicates mean nothing to it: the block gives the
distinct combinations of keys and arguments, and the aggregates stay as they are. A SELECT DISTINCT
without aggregates is treated the same way.

A function that the parser does not know may be an aggregate of Spark's, and so may one that is no
rule of `lower`: with one of these in sight nothing is done.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pyarrow as pa
from sqlglot import exp

from eddies.core.expr import Expr
from eddies.core.query import Aggregate, AggregateFunction, Aggregation, Output
from eddies.sql.block import Draft
from eddies.sql.having import condition_on_groups
from eddies.sql.join_tree import has_subquery, relations
from eddies.sql.lower import RULES
from eddies.sql.merge import merged
from eddies.sql.names import Names
from eddies.sql.plain import is_known_scalar, nondeterministic
from eddies.sql.scope import column
from eddies.sql.typed import CannotLower, Typed

__all__ = ["aggregate_partially"]

_CLAUSES = ("having", "order", "sort", "cluster", "distribute", "qualify")
_ALLOWED = {
    *_CLAUSES,
    *("kind", "hint", "expressions", "from_", "joins", "where", "with_", "operation_modifiers"),
    *("group", "distinct", "limit", "offset"),
}
_OF_A_SET = (exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max)


def aggregate_partially(
    select: exp.Select, draft: Draft, functions: Collection[str]
) -> tuple[exp.Select, Aggregation, Expr | None] | None:
    """The SELECT over partial rows of `draft`, the aggregation that makes them, and what HAVING asks of
    whole groups (`having`); or None.

    `functions` are the user's own (lower case), which never aggregate. `select` is left unchanged.
    """
    if any(value and key not in _ALLOWED for key, value in select.args.items()):
        return None
    result = select.copy()
    try:
        rewriting = _Rewriting(result, draft, functions)
        aggregation = rewriting.run()
    except CannotLower:
        return None
    if rewriting.of_sets:  # then groups of the block are finer than those of the text
        return result, aggregation, None
    return result, aggregation, condition_on_groups(result, draft.name, aggregation, draft.settings)


class _Rewriting:
    def __init__(self, select: exp.Select, draft: Draft, functions: Collection[str]) -> None:
        self._select = select
        self._draft = draft
        self._functions = functions
        self._names = Names()
        self._groups: dict[Expr, Output] = {}
        self._keys: list[tuple[exp.Expr, Expr]] = []
        self._partials: dict[tuple[str, Expr | None], Aggregate] = {}
        self.of_sets = False

    def run(self) -> Aggregation:
        keys = self._group_keys()
        found = [call for clause in self._clauses() for call in _aggregates(clause)]
        if not found and not keys:
            keys = self._distinct_items()
        self.of_sets = bool(found) and all(map(_ignores_duplicates, found))
        for position, key in enumerate(keys):
            wanted = key.name if isinstance(key, exp.Column) else f"key_{position + 1}"
            self._keys.append((key.unnest().copy(), self._group(key, wanted)))
        group = self._select.args.get("group")
        if group is not None:
            group.set("expressions", [self._key_column(expr) for _, expr in self._keys])
        self._rewrite_children(self._select, ("expressions", *_CLAUSES))
        if not self._groups and not self._partials:
            raise CannotLower("nothing to aggregate")
        return Aggregation(
            tuple(self._groups.values()), tuple(self._partials.values()), partial=True
        )

    # -- what there is -----------------------------------------------------------------------------

    def _clauses(self) -> Iterator[exp.Expr]:
        yield from self._select.expressions
        yield from (self._select.args[name] for name in _CLAUSES if self._select.args.get(name))

    def _group_keys(self) -> list[exp.Expr]:
        group = self._select.args.get("group")
        if group is None:
            return []
        if any(value for key, value in group.args.items() if key != "expressions"):
            raise CannotLower("grouping sets run above")
        return list(group.expressions)

    def _distinct_items(self) -> list[exp.Expr]:
        if not self._select.args.get("distinct") or self._select.args["distinct"].args.get("on"):
            raise CannotLower("neither groups nor aggregates")
        return [item.this for item in self._select.expressions]

    # -- columns of the block ----------------------------------------------------------------------

    def _group(self, node: exp.Expr, wanted: str) -> Expr:
        typed = self._draft.lowering.lower(node)
        if pa.types.is_nested(typed.type) or pa.types.is_null(typed.type):
            raise CannotLower("grouping by this type runs above")
        if typed.expr not in self._groups:
            name = self._names.unique(wanted)
            self._groups[typed.expr] = Output(name, typed.expr, typed.type)
        return typed.expr

    def _key_column(self, expr: Expr) -> exp.Column:
        return column(self._draft.name, self._groups[expr].name)

    def _partial(
        self, function: AggregateFunction, argument: Typed | None, type: pa.DataType
    ) -> exp.Column:
        key = function, argument.expr if argument is not None else None
        if key not in self._partials:
            name = self._names.unique(f"__{function}_{len(self._partials) + 1}")
            self._partials[key] = Aggregate(name, function, key[1], type)
        return column(self._draft.name, self._partials[key].name)

    # -- rewriting ---------------------------------------------------------------------------------

    def _rewrite(self, node: exp.Expr) -> exp.Expr:
        key = self._matching_key(node)
        if key is not None:
            return self._key_column(key)
        if isinstance(node, exp.Filter):
            raise CannotLower("FILTER runs above")
        if isinstance(node, exp.AggFunc):
            return self._aggregate(node)
        if isinstance(node, exp.Query):
            if relations(node) & self._draft.relations.keys():
                raise CannotLower("a correlated subquery beside aggregates runs above")
            return node
        if isinstance(node, exp.Column) and node.table in self._draft.relations:
            raise CannotLower("a column that is no group key")
        if isinstance(node, exp.Window):
            return self._window(node)
        self._check_scalar(node)
        self._rewrite_children(node, tuple(node.args))
        return node

    def _window(self, window: exp.Window) -> exp.Expr:
        """The function of a window runs above; what it reads may be keys and aggregates."""
        if not isinstance(window.this, exp.Func) or isinstance(window.this, exp.Anonymous):
            raise CannotLower("this window function runs above")
        self._rewrite_children(window.this, tuple(window.this.args))
        self._rewrite_children(window, tuple(key for key in window.args if key != "this"))
        return window

    def _rewrite_children(self, node: exp.Expr, keys: tuple[str, ...]) -> None:
        for key in keys:
            part = node.args.get(key)
            if isinstance(part, exp.Expr):
                node.set(key, self._rewrite(part))
            elif isinstance(part, list):
                parts = [self._rewrite(one) if isinstance(one, exp.Expr) else one for one in part]
                node.set(key, parts)

    def _aggregate(self, node: exp.AggFunc) -> exp.Expr:
        if not isinstance(node.this, exp.Distinct) or isinstance(node, exp.Min | exp.Max):
            if isinstance(node.this, exp.Distinct):
                node.set("this", node.this.expressions[0])
            return merged(node, self._draft, self._partial)
        if not self.of_sets:
            raise CannotLower("DISTINCT beside other aggregates runs above")
        arguments = [
            self._key_column(self._group(argument, "argument"))
            for argument in node.this.expressions
        ]
        node.this.set("expressions", arguments)
        return node

    def _matching_key(self, node: exp.Expr) -> Expr | None:
        """The group key that `node` is, in the same words or by meaning the same."""
        if isinstance(node, exp.Alias | exp.Ordered | exp.Order | exp.Having | exp.Query):
            return None
        bare = node.unnest()
        if isinstance(bare, exp.Literal | exp.Null | exp.Boolean):
            return None  # a constant stays one: some functions take nothing else
        for key, expr in self._keys:
            if bare == key:
                return expr
        if not relations(node) or has_subquery(node) or next(_aggregates(node), None) is not None:
            return None
        try:
            expr = self._draft.lowering.lower(bare).expr
        except CannotLower:
            return None
        return expr if any(expr == known for _, known in self._keys) else None

    def _check_scalar(self, node: exp.Expr) -> None:
        known = not isinstance(node, exp.Func) or type(node) in RULES or nondeterministic(node)
        if isinstance(node, exp.Anonymous):
            known = is_known_scalar(node, self._functions)
        if not known:
            raise CannotLower(f"{node.sql('spark')} may be an aggregate")


def _aggregates(node: exp.Expr) -> Iterator[exp.Expr]:
    """The aggregate calls of `node`: not those of subqueries, nor the functions of windows."""
    if isinstance(node, exp.Query):
        return
    if isinstance(node, exp.AggFunc) and not isinstance(node.parent, exp.Window):
        yield node
        return
    for part in node.iter_expressions():
        yield from _aggregates(part)


def _ignores_duplicates(node: exp.Expr) -> bool:
    return isinstance(node, exp.Min | exp.Max) or (
        isinstance(node, _OF_A_SET) and isinstance(node.this, exp.Distinct)
    )
