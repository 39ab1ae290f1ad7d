"""Several random queries over the same tables: parts of one, each with other selections."""

from __future__ import annotations

import random
from dataclasses import replace

from eddies.core.expr import sources_of
from eddies.core.query import Query
from tests.support.random_queries import Case

__all__ = ["random_parts"]


def random_parts(case: Case, rng: random.Random) -> dict[str, Query]:
    """Two to four queries over some of the sources of `case`, with all, some or none of the predicates
    that read no others.
    """
    return {f"q{i}": _part(case.query, rng) for i in range(rng.randint(2, 4))}


def _part(query: Query, rng: random.Random) -> Query:
    n_sources = rng.randint(1, len(query.sources))
    chosen = {source.name for source in rng.sample(query.sources, n_sources)}
    share = rng.choice((0.0, 0.5, 1.0))
    return replace(
        query,
        sources=tuple(source for source in query.sources if source.name in chosen),
        selections=tuple(
            s for s in query.selections if sources_of(s.expr) <= chosen and rng.random() < share
        ),
        equalities=tuple(
            e for e in query.equalities if sources_of(e.left) | sources_of(e.right) <= chosen
        ),
        filters=tuple(f for f in query.filters if sources_of(f.expr) <= chosen),
        output=tuple(o for o in query.output if sources_of(o.expr) <= chosen),
        never=query.never or rng.random() < 0.03,
    )
