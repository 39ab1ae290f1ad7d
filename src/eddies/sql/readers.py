"""Who reads what a block puts out: how often, and whether the rows are sorted after that.

A block whose output is read twice by the text above and the texts between blocks runs twice, unless
the host keeps the rows in between. A WITH table is spelled out wherever it is read, so a block inside
of one is read as often as the table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from sqlglot import exp

__all__ = ["read_often", "sorted_block"]


def read_often(trees: Iterable[exp.Query], names: Iterable[str]) -> frozenset[str]:
    """Those of `names` that the texts read more than once."""
    reads: Counter[str] = Counter()
    for tree in trees:
        tables = {cte.alias: cte.this for cte in tree.find_all(exp.CTE)}
        reads.update(_reads(tree, tables))
    return frozenset(name for name in names if reads[name] > 1)


def _reads(tree: exp.Expr, tables: dict[str, exp.Expr]) -> Counter[str]:
    """How often `tree` reads each table, WITH tables spelled out."""
    found: Counter[str] = Counter()
    for node in tree.walk(prune=lambda node: isinstance(node, exp.With)):
        if isinstance(node, exp.Table):
            others = {name: table for name, table in tables.items() if name != node.name}
            known = tables.get(node.name)
            found.update([node.name] if known is None else _reads(known, others))
    return found


def sorted_block(above: exp.Query | None) -> str | None:
    """The table of which `above` is the rows, selected and grouped, in an order; None if it is more, or
    is cut off by LIMIT, for which Spark does not sort.
    """
    if not isinstance(above, exp.Select) or not above.args.get("order"):
        return None
    if any(above.args.get(clause) for clause in ("joins", "laterals", "limit", "offset")):
        return None
    source = above.args.get("from_")
    item = source.this if source is not None else None
    return item.name if isinstance(item, exp.Table) else None
