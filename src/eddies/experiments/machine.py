"""What experiments in virtual time share: queries in few words, who went where, same answers."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa

from eddies.core.events import Event, Routed
from eddies.core.expr import Call, Column, Literal
from eddies.core.lineage import Signature
from eddies.core.query import Equality, Output, Query, Selection, Source
from eddies.hosts.queued import QueuedRun

__all__ = ["Recorder", "assert_same_answer", "below", "join_query", "select_query"]


def below(source: str, column: str, limit: float) -> Selection:
    """An expensive selection `column < limit`: it keeps `limit` of what is uniform in [0, 1)."""
    return Selection(
        Call("lt", (Column(source, column), Literal(limit, pa.float64()))), expensive=True
    )


def select_query(table: pa.Table, selections: tuple[Selection, ...]) -> Query:
    """`SELECT ... FROM u WHERE ...`."""
    first = table.schema.field(0)
    output = (Output(first.name, Column("u", first.name), first.type),)
    return Query((Source("u", "u", table.schema),), selections, output=output)


def join_query(tables: dict[str, pa.Table], equalities: tuple[tuple[str, str], ...]) -> Query:
    """An equijoin; equalities are pairs such as ("R.a", "S.a") of columns of 64-bit integers."""

    def column(text: str) -> Column:
        source, _, name = text.partition(".")
        return Column(source, name)

    sources = tuple(Source(name, name, table.schema) for name, table in tables.items())
    keys = tuple(Equality(column(a), column(b), pa.int64()) for a, b in equalities)
    first = sources[0]
    field = first.schema.field(0)
    output = (Output(field.name, Column(first.name, field.name), field.type),)
    return Query(sources, equalities=keys, output=output)


class Recorder:
    """Remembers where the rows of one source went first, in order."""

    def __init__(self, source_id: int = 0) -> None:
        self._mask = 1 << source_id
        self.firsts: list[tuple[int, str, int]] = []  # moment (ns), module, rows

    def emit(self, event: Event) -> None:
        """Keep routings of rows that come straight from the source."""
        if isinstance(event, Routed) and event.signature == Signature(self._mask):
            self.firsts.append((event.at_ns, event.module, event.n_in))

    def n_first(self, *, before_ns: float = float("inf")) -> Counter[str]:
        """Rows by the module that saw them first."""
        counts: Counter[str] = Counter()
        for at_ns, module, n_rows in self.firsts:
            if at_ns < before_ns:
                counts[module] += n_rows
        return counts

    def share(self, module: str, *, before_ns: float = float("inf")) -> float:
        """Part of the rows that saw `module` first."""
        counts = self.n_first(before_ns=before_ns)
        return counts[module] / max(1, counts.total())

    def cumulative_share(self, module: str) -> tuple[list[int], list[float]]:
        """Rows routed so far, and the part of them that saw `module` first."""
        n_routed, n_here = 0, 0
        rows, shares = [], []
        for _, name, n_rows in self.firsts:
            n_routed += n_rows
            n_here += n_rows if name == module else 0
            rows.append(n_routed)
            shares.append(n_here / n_routed)
        return rows, shares


def assert_same_answer(run: QueuedRun, reference: QueuedRun) -> None:
    """Any order, same bag: stop an experiment whose answer is wrong."""
    found, expected = run.results(), reference.results()
    if not np.array_equal(found, expected):
        raise AssertionError(
            f"any order, same bag: {len(found)} results, unlike the static plan's {len(expected)}"
        )
