"""SQL text to one syntax tree, or an error that points at the place.

sqlglot reads the Spark dialect. Two things are settled here so that no later step meets them: what
is not a single SELECT is refused by name, and `'it''s'` is one string with a quote in it, as in
Spark 4 (sqlglot's Spark reader takes it for two strings to be concatenated).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TypeVar

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from eddies.errors import PlanError, UnsupportedError

__all__ = ["DIALECT", "parse"]

DIALECT = "spark"
T = TypeVar("T")


def parse(text: str) -> exp.Query:
    """The syntax tree of the one SELECT in `text`."""
    if not text.strip():
        raise PlanError("the query is empty: expected a SELECT statement")
    text = _with_escaped_quotes(text)
    trees = [tree for tree in _read(text, lambda: sqlglot.parse(text, read=DIALECT)) if tree]
    if not trees:
        raise PlanError("the query has no statement: expected a SELECT")
    if len(trees) > 1:
        raise UnsupportedError(f"{len(trees)} statements in one text: pass one SELECT at a time")
    tree = trees[0]
    while isinstance(tree, exp.Subquery) and not tree.args.get("alias"):
        if any(tree.args.get(part) for part in ("order", "limit", "offset", "with_", "joins")):
            break
        tree = tree.this
    if not isinstance(tree, exp.Query):
        raise UnsupportedError(
            f"{_statement_name(tree)} is not a query: only SELECT can be planned"
        )
    if any(select.expressions == [] for select in tree.find_all(exp.Select)):
        raise PlanError("a SELECT without items: expected columns, expressions or *")
    for parameter in tree.find_all(exp.Placeholder, exp.Parameter, exp.SessionParameter):
        raise UnsupportedError(
            f"parameter {parameter.sql(DIALECT)!r}: put the value into the text, as a literal"
        )
    return tree


def _statement_name(tree: exp.Expr) -> str:
    return str(tree.this).upper() if isinstance(tree, exp.Command) else tree.key.upper()


def _read(text: str, read: Callable[[], T]) -> T:
    try:
        return read()
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        message = str(first.get("description") or error).rstrip(".")
        line, end = first.get("line"), first.get("col")
        if line is None or end is None:
            raise PlanError(f"syntax error: {message}") from error
        width = max(len(str(first.get("highlight") or "")), 1)
        raise PlanError(_pointing(text, message, line, max(end - width + 1, 1), width)) from error
    except TokenError as error:
        raise PlanError(f"syntax error: {str(error).splitlines()[0]}") from error


def _pointing(text: str, message: str, line: int, column: int, width: int) -> str:
    lines = text.splitlines()
    shown = lines[line - 1] if 0 < line <= len(lines) else ""
    carets = "^" * max(1, min(width, len(shown) - column + 1))
    return (
        f"syntax error at line {line}, column {column}: {message}\n"
        f"  {shown}\n  {' ' * (column - 1)}{carets}"
    )


def _with_escaped_quotes(text: str) -> str:
    r"""`text` with every `''` inside a string written `\'`, which both readers agree on."""
    if "''" not in text:
        return text
    tokens: list[Token] = _read(text, lambda: sqlglot.tokenize(text, read=DIALECT))
    touching = [
        second.start
        for first, second in pairwise(tokens)
        if first.token_type == second.token_type == TokenType.STRING
        and first.end + 1 == second.start
        and text[first.end] == text[second.start] == "'"
    ]
    for start in reversed(touching):
        text = text[: start - 1] + "\\'" + text[start + 1 :]
    return text
