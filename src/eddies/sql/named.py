"""Which tables a text names, before anything is known about them."""

from __future__ import annotations

from functools import lru_cache

from sqlglot import exp

from eddies.sql.parse import parse

__all__ = ["named_tables"]

_TEXTS = 256  # whose names are remembered


@lru_cache(_TEXTS)
def named_tables(text: str) -> frozenset[str]:
    """The names of all tables (and CTEs) in `text`, in lower case.

    >>> sorted(named_tables("SELECT * FROM a, B WHERE a.x IN (SELECT y FROM c)"))
    ['a', 'b', 'c']
    """
    tables = parse(text).find_all(exp.Table)
    return frozenset(".".join(part.name for part in table.parts).lower() for table in tables)
