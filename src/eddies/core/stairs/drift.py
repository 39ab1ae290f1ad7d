"""Whether rows match otherwise than those that came before them: the sign of parts told by arrival.

Each step of each route counts tuples that went in and came out. At a *glance* the tuples since the last
one are a stretch; where a step found far more for each tuple than in the stretch before, data has
changed its character. Matches grow with the rows that are stored, but slowly beside a stretch. A glance
costs a microsecond a step and looks at no row.
"""

from __future__ import annotations

from collections.abc import Iterable

from eddies.core.route import Route

__all__ = ["Drift"]

_TIMES = 2.0  # what was found before: more is a surprise
_SHARE = 0.08  # of the tuples of a stretch that must be surprises


class Drift:
    """Compares each stretch with the one before; call `glance` at the end of each.

    As of the last glance, `has_drifted` says whether much of what was found was not to be expected,
    `n_intermediate` how many tuples of several sources were routed on since the beginning, and
    `share_lately` how many of all tuples of the last stretch those were.
    """

    def __init__(self) -> None:
        self.has_drifted = False
        self.n_intermediate = 0
        self.share_lately = 0.0
        self._counts: dict[tuple[int, int], tuple[int, int]] = {}
        self._found: dict[tuple[int, int], float] = {}  # for each tuple, in the stretch before

    def glance(self, routes: Iterable[Route]) -> None:
        """Compare what was found since the last glance with what was to be expected."""
        sums: dict[tuple[int, int], tuple[int, int]] = {}
        for route in routes:
            if route.fork is None:
                continue
            sources = route.signature.sources
            for after, way in zip(route.fork.leads_to, route.ways, strict=True):
                if way.n_in and after.sources != sources:
                    key = sources, after.sources
                    before_in, before_out = sums.get(key, (0, 0))
                    sums[key] = before_in + way.n_in, before_out + way.n_out
        n_before = self.n_intermediate
        self.n_intermediate = sum(n for (mask, _), (n, _) in sums.items() if mask & (mask - 1))
        surprise = work = 0.0
        for key, (n_in, n_out) in sums.items():
            before = self._counts.get(key, (0, 0))
            n_in, n_out = n_in - before[0], n_out - before[1]
            if not n_in:
                continue
            work += n_in + n_out
            if key in self._found:
                surprise += max(0.0, n_out - _TIMES * self._found[key] * n_in)
            self._found[key] = n_out / n_in
        self._counts = sums
        self.share_lately = (self.n_intermediate - n_before) / max(1.0, work)
        self.has_drifted = surprise > _SHARE * work
