"""Which relations a query reads, and where they are defined."""

from __future__ import annotations

from sqlglot import exp

__all__ = [
    "outer_references",
    "referenced_tables",
    "without_qualifiers",
    "without_unused_tables",
]


def referenced_tables(tree: exp.Expr) -> set[str]:
    """The tables that `tree` names in FROM."""
    return {t.name for t in tree.find_all(exp.Table) if isinstance(t.this, exp.Identifier)}


def outer_references(query: exp.Expr) -> set[str]:
    """The relations `query` reads that are defined outside of it."""
    inside = {alias.name for alias in query.find_all(exp.TableAlias)}
    # Only blocks have no alias. The name of a table with one may be an alias outside.
    inside |= {table.name for table in query.find_all(exp.Table) if not table.alias}
    return {node.table for node in query.find_all(exp.Column) if node.table} - inside


def without_unused_tables(tree: exp.Query) -> exp.Query:
    """`tree` without the WITH tables that nothing reads any longer."""
    while True:
        read = referenced_tables(tree)
        unused = [cte for cte in tree.find_all(exp.CTE) if cte.alias not in read]
        if not unused:
            return tree
        for cte in unused:
            clause = cte.parent
            cte.pop()
            if isinstance(clause, exp.With) and not clause.expressions:
                clause.pop()


def without_qualifiers(node: exp.Expr) -> exp.Expr:
    """A copy of `node` with bare column names."""
    node = node.copy()
    for column in node.find_all(exp.Column):
        column.set("table", None)
    return node
