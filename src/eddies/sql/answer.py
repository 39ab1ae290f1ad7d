"""The text above a block as an answer from whole groups, where it is nothing more.

Above a block that is aggregated partially, a SELECT merges groups and computes what was asked. Where
one cell sees all rows of every group there is nothing to merge: the sum of one number is that number,
and so are the least and the greatest. What is left (HAVING, arithmetic, ORDER BY, LIMIT) an eddy's
host can do with the groups at hand, and Spark has nothing to plan above them:

    SELECT b.k, CAST(SUM(b.__sum_1) AS DECIMAL(25, 2)) AS s FROM b GROUP BY b.k ORDER BY s
        ->  CAST(b.__sum_1 AS ...) of every group, sorted by it

Only the host knows which cells see whole groups (`eddies.spark.whole_groups`), so the answer is told
beside the text above, which does the same with groups in parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
from pyarrow import types as kinds
from sqlglot import exp

from eddies.core.answer import Answer, SortKey
from eddies.core.query import Aggregation, Output, Query
from eddies.core.state.columns import normal_type
from eddies.errors import TypeMismatchError
from eddies.sql.having import of_one_row
from eddies.sql.lower import Lowering
from eddies.sql.settings import Settings
from eddies.sql.typed import CannotLower

__all__ = ["answers_of"]

_ALLOWED = {"expressions", "from_", "group", "having", "order", "limit", "offset", "distinct"}


def answers_of(
    above: exp.Query | None,
    derived_trees: Mapping[str, exp.Query],
    blocks: Mapping[str, Query],
    read_often: frozenset[str],
    settings: Settings,
) -> tuple[dict[str, Answer], dict[str, str]]:
    """What the texts make of blocks whose groups only one of them reads, by block; and the blocks whose
    answers are derived sources, by these.
    """
    answers: dict[str, Answer] = {}
    answered: dict[str, str] = {}
    sources = [source for query in blocks.values() for source in query.sources]
    for derived, tree in derived_trees.items():
        columns = dict.fromkeys(c for s in sources if s.table == derived for c in s.schema)
        found = _derived_answer_of(tree, pa.schema(list(columns)), blocks, settings)
        if found is not None and found[0] not in read_often:
            answered[derived], answers[found[0]] = found
    found = _answer_of(above, blocks, settings)
    if found is not None and found[0] not in read_often:
        answers[found[0]] = found[1]
    return answers, answered


def _answer_of(
    above: exp.Query | None, blocks: Mapping[str, Query], settings: Settings
) -> tuple[str, Answer] | None:
    """The block of which `above` is nothing but the groups, and what it makes of them."""
    if not isinstance(above, exp.Select):
        return None
    if any(value and key not in _ALLOWED for key, value in above.args.items()):
        return None
    source = above.args.get("from_")
    table = source.this if source is not None else None
    if not isinstance(table, exp.Table) or table.alias or table.name not in blocks:
        return None
    aggregation = blocks[table.name].aggregation
    if aggregation is None or not aggregation.partial or not _has_groups(above, aggregation):
        return None
    try:
        return table.name, _Answering(above.copy(), table.name, aggregation, settings).answer()
    except (CannotLower, TypeMismatchError):  # Spark says of wrong types what it always says
        return None


def _derived_answer_of(
    tree: exp.Query, schema: pa.Schema, blocks: Mapping[str, Query], settings: Settings
) -> tuple[str, Answer] | None:
    """`_answer_of` for a derived source: all columns of a subquery, perhaps by other names.

    Its readers expect `schema`.
    """
    source = tree.args.get("from_")
    item = source.this if source is not None else None
    if not isinstance(tree, exp.Select) or not isinstance(item, exp.Subquery):
        return None
    if any(value and key not in ("expressions", "from_") for key, value in tree.args.items()):
        return None
    found = _answer_of(item.this, blocks, settings)
    if found is None or [*map(type, tree.expressions)] != [exp.Star]:
        return None
    block, answer = found
    names = item.alias_column_names or [column.name for column in answer.columns]
    renamed = (replace(c, name=name) for c, name in zip(answer.columns, names, strict=True))
    answer = replace(answer, columns=tuple(renamed))
    types = {column.name: normal_type(column.type) for column in answer.columns}
    is_known = all(types.get(field.name) == field.type for field in schema)
    return (block, answer) if is_known else None


def _has_groups(select: exp.Select, aggregation: Aggregation) -> bool:
    """Whether the groups of `select` are those of the block, and not coarser. Each of them is a row of
    its own; with DISTINCT as well, as long as all keys are items.
    """
    wanted = {key.name for key in aggregation.groups}
    group, distinct = select.args.get("group"), select.args.get("distinct")
    items = [item.unalias() for item in select.expressions]
    if distinct and (distinct.args.get("on") or not wanted <= _named(items)):
        return False
    keys = items if distinct and group is None else group.expressions if group is not None else []
    return _named(keys) == wanted and len(wanted) == len(keys)


def _named(keys: list[exp.Expr]) -> set[str]:
    return {key.name for key in keys if isinstance(key, exp.Column)}


class _Answering:
    def __init__(
        self, select: exp.Select, block: str, aggregation: Aggregation, settings: Settings
    ) -> None:
        self._select = select
        types = {column.name: column.type for column in aggregation.groups}
        types |= {column.name: column.type for column in aggregation.aggregates}
        self._lowering = Lowering({block: types}, (), settings)
        self._items: dict[str, list[exp.Expr]] = {}

    def answer(self) -> Answer:
        columns = tuple(self._column(item) for item in self._select.expressions)
        having = self._select.args.get("having")
        condition = None if having is None else self._lowering.predicate(_of_groups(having.this))
        order = self._select.args.get("order")
        keys = () if order is None else tuple(map(self._sort_key, order.expressions))
        limit = self._number("limit")
        return Answer(columns, condition, keys, self._number("offset") or 0, limit)

    def _column(self, item: exp.Expr) -> Output:
        if not isinstance(item, exp.Alias):
            raise CannotLower("an item without a name")
        self._items.setdefault(item.alias.lower(), []).append(item.this)
        typed = self._lowering.lower(_of_groups(item.this))
        if kinds.is_null(typed.type) or kinds.is_nested(typed.type):
            raise CannotLower("an item of this type runs above")
        return Output(item.alias, typed.expr, typed.type)

    def _sort_key(self, ordered: exp.Expr) -> SortKey:
        if not isinstance(ordered, exp.Ordered) or ordered.args.get("with_fill"):
            raise CannotLower("this order runs above")
        node = ordered.this.transform(self._named_item)
        typed = self._lowering.lower(_of_groups(node))
        if not _is_sortable(typed.type) or isinstance(node, exp.Literal):
            raise CannotLower("an order by this type runs above")
        is_descending = bool(ordered.args.get("desc"))
        return SortKey(typed.expr, is_descending, bool(ordered.args.get("nulls_first")))

    def _named_item(self, node: exp.Expr) -> exp.Expr:
        """What a name without a table stands for: an item of that name."""
        if not isinstance(node, exp.Column) or node.table:
            return node
        found = self._items.get(node.name.lower(), [])
        if len(found) != 1:
            raise CannotLower(f"{node.name} is not the name of one item")
        return exp.paren(found[0].copy())

    def _number(self, clause: str) -> int | None:
        found = self._select.args.get(clause)
        if found is None:
            return None
        number = found.args.get("expression")
        if not isinstance(number, exp.Literal) or not number.is_int:
            raise CannotLower(f"this {clause.upper()} runs above")
        return int(number.this)


def _of_groups(node: exp.Expr) -> exp.Expr:
    """`node` over groups in parts as an expression over whole groups."""
    return node.transform(of_one_row)


def _is_sortable(type: pa.DataType) -> bool:
    tests = (
        kinds.is_integer,
        kinds.is_floating,
        kinds.is_decimal,
        kinds.is_boolean,
        kinds.is_date,
        kinds.is_timestamp,
        kinds.is_string,
        kinds.is_binary,
    )
    return any(test(type) for test in tests)
