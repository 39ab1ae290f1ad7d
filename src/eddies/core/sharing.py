"""Several queries in one eddy, so that they share scans and SteMs.

    eddy = Eddy(shared({"late": query_a, "large": query_b}))
    for rows in ...:  query_of(rows)          # "late" or "large"

The queries become one `Query` whose sources are the sources of all of them, and nothing connects those
of one with those of another. Sources of different queries that read the same table are roles of one
relation, as in a self-join: its rows come in once and are stored once, with a flag for each role that
says whether its selections want the row (Madden et al. 2002 do so with a bitmap of queries in every
tuple; Raman et al. 2003, section 2, name it as a use of SteMs). Roles without selections share their
indexes, one a key; a role with some has its own, of the rows that it wants. A batch belongs to the
query of its driver and is routed among the sources of that query only, by what was learned about them.
It is a result when it spans them all.

The stamps need nothing new: a result has parts of one query only, and the limits of its driver hold for
each of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from eddies.core.expr import Call, Cast, Column, Expr, Literal
from eddies.core.options import Options
from eddies.core.query import Equality, Part, Query, UserFunction
from eddies.errors import OptionError, PlanError, UnsupportedError

__all__ = ["check_sharing", "shared"]


def check_sharing(options: Options) -> None:
    """Raise if `options` do not suit an eddy with several queries: SteMs, in memory."""
    if options.state not in ("auto", "stems") or options.memory is not None:
        raise OptionError(
            "several queries in one eddy need state='stems' or 'auto', and no bound on memory"
        )
    if options.partial or options.order or options.stem != "hash":
        raise OptionError("partial=..., order=... and stem=... are for an eddy with one query")


def shared(queries: Mapping[str, Query]) -> Query:
    """One query that computes all of `queries`. Its sources are named `query.source`."""
    if len(queries) < 2:
        raise PlanError("sharing takes two queries or more")
    functions: dict[str, UserFunction] = {}
    parts, whole = [], Query(())
    for name, query in queries.items():
        if query.aggregation is not None or query.exists or query.parts:
            raise UnsupportedError(
                f"query {name!r} groups its rows or asks sources for matches; queries that share an "
                "eddy only join, select and project"
            )
        for function in query.functions:
            known = functions.setdefault(function.name, function)
            if known != function:
                raise PlanError(
                    f"function {function.name!r} is one thing in query {name!r} and another elsewhere; "
                    "give them different names"
                )
        # A query that is empty whatever the data has no source in the eddy, so no part in its work.
        own = Query(()) if query.never else _renamed(query, f"{name}.")
        parts.append(Part(name, tuple(source.name for source in own.sources), own.output))
        whole = Query(
            whole.sources + own.sources,
            whole.selections + own.selections,
            whole.equalities + own.equalities,
            whole.filters + own.filters,
            stored=whole.stored + own.stored,
        )
    if not whole.sources:
        raise UnsupportedError(f"all queries ({', '.join(queries)}) are empty whatever the data")
    return replace(whole, functions=tuple(functions.values()), parts=tuple(parts))


def _renamed(query: Query, prefix: str) -> Query:
    """`query` with `prefix` before the names of its sources."""
    return Query(
        tuple(replace(source, name=prefix + source.name) for source in query.sources),
        tuple(replace(s, expr=_in(s.expr, prefix)) for s in query.selections),
        tuple(
            Equality(_in(e.left, prefix), _in(e.right, prefix), e.type) for e in query.equalities
        ),
        tuple(replace(f, expr=_in(f.expr, prefix)) for f in query.filters),
        tuple(replace(o, expr=_in(o.expr, prefix)) for o in query.output),
        stored=tuple(Column(prefix + column.source, column.name) for column in query.stored),
    )


def _in(expr: Expr, prefix: str) -> Expr:
    match expr:
        case Column(source=source, name=name):
            return Column(prefix + source, name)
        case Cast(arg=arg):
            return replace(expr, arg=_in(arg, prefix))
        case Call(args=args):
            return replace(expr, args=tuple(_in(arg, prefix) for arg in args))
        case Literal():
            return expr
