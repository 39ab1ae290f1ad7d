"""A snapshot of a running eddy, for people and tests: rows, routes, time, memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from eddies.core.graph import Graph
from eddies.core.lineage import Signature
from eddies.core.modules.stem import SteM
from eddies.core.router import Router

__all__ = ["Progress", "RouteShare", "SourceProgress", "report_progress", "together"]


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """How much of a relation has come and how much of it is kept.

    With windows, `n_late` rows came after their time and were dropped, and `n_evicted` were forgotten
    because no window reaches them any more.
    """

    name: str
    n_arrived: int
    n_stored: int
    is_ended: bool
    n_bytes: int
    n_late: int = 0
    n_evicted: int = 0


@dataclass(frozen=True, slots=True)
class RouteShare:
    """What one signature sent to one module."""

    signature: Signature
    module: str
    n_in: int
    n_out: int
    n_batches: int
    ns: int


@dataclass(frozen=True, slots=True)
class Progress:
    """All of it at one moment. `n_probes` is the rows that went to any module."""

    sources: tuple[SourceProgress, ...]
    routes: tuple[RouteShare, ...]
    n_driver_rows: int
    n_decisions: int
    ns_deciding: int
    ns_indexing: int

    @property
    def n_probes(self) -> int:
        return sum(share.n_in for share in self.routes)

    @property
    def ns_working(self) -> int:
        """Time inside modules."""
        return sum(share.ns for share in self.routes)


def together(parts: Iterable[Progress]) -> Progress:
    """What several eddies of one query have done in all."""
    parts = list(parts)
    sources: dict[str, SourceProgress] = {}
    totals: dict[tuple[Signature, str], list[int]] = {}
    for part in parts:
        for source in part.sources:
            known = sources.get(source.name)
            if known is not None:
                source = SourceProgress(
                    source.name,
                    known.n_arrived + source.n_arrived,
                    known.n_stored + source.n_stored,
                    known.is_ended and source.is_ended,
                    known.n_bytes + source.n_bytes,
                    known.n_late + source.n_late,
                    known.n_evicted + source.n_evicted,
                )
            sources[source.name] = source
        for share in part.routes:
            sums = totals.setdefault((share.signature, share.module), [0, 0, 0, 0])
            counts = (share.n_in, share.n_out, share.n_batches, share.ns)
            sums[:] = [a + b for a, b in zip(sums, counts, strict=True)]
    return Progress(
        tuple(sources.values()),
        tuple(RouteShare(*key, *sums) for key, sums in totals.items()),
        sum(part.n_driver_rows for part in parts),
        sum(part.n_decisions for part in parts),
        sum(part.ns_deciding for part in parts),
        sum(part.ns_indexing for part in parts),
    )


def _n_bytes(stem: SteM) -> int:
    with stem.lock:  # nobody makes or extends an index meanwhile
        return stem.n_bytes


def report_progress(
    graph: Graph,
    stems: Sequence[SteM],
    routers: Sequence[Router],
    n_arrived: Sequence[int],
    ended: Sequence[bool],
) -> Progress:
    """Read the counters of an eddy, which other threads may be changing: each is right by itself, but
    they may be of slightly different moments.
    """
    sources = tuple(
        SourceProgress(
            relation.name, n_arrived[i], stems[i].store.n_rows, ended[i], _n_bytes(stems[i])
        )
        for i, relation in enumerate(graph.relations)
    )
    totals: dict[tuple[Signature, str], list[int]] = {}
    for router in routers:
        for route in router.table.routes():
            for way in route.ways:
                sums = totals.setdefault((route.signature, way.name), [0, 0, 0, 0])
                counts = (way.n_in, way.n_out, way.n_runs, way.ns)
                sums[:] = [a + b for a, b in zip(sums, counts, strict=True)]
    routes = tuple(RouteShare(*key, *sums) for key, sums in totals.items())
    return Progress(
        sources,
        routes,
        sum(router.n_driver_rows for router in routers),
        sum(router.n_decisions for router in routers),
        sum(router.ns_deciding for router in routers),
        sum(router.ns_indexing for router in routers),
    )
