"""The route table: for every signature that occurs, where it may go and what is decided.

The overhead study indexes an array by the signature bitmap (section 3.3); an array over all
signatures is exponential in the number of sources, so entries are made when a batch first needs them
and each points at its successors. A batch carries its `Route`, so routing it costs no look-up at all.

A route also counts what went each of its ways: these counters never decay and are what progress,
traces and tests read. Policies keep their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from eddies.core.lineage import Signature
from eddies.core.live import EVERYTHING
from eddies.core.policies.base import Fork

if TYPE_CHECKING:
    from eddies.core.module import Step

__all__ = ["UNTIL_REOPTIMIZED", "Expander", "Path", "Route", "RouteTable", "Way", "already"]

UNTIL_REOPTIMIZED = 2**62  # rows: more than will ever come

Expander = Callable[["Route", "RouteTable"], tuple[Fork | None, list[Callable[[], "Step"]]]]
"""Works out the legal steps of a new route, which are made when first taken; `None` and no steps for a
result.
"""


class Way:
    """One legal step of a route, candidate `number` of its fork, and what went there.

    `before` are the counters (runs, rows in, rows out, time) before the first run that the policy has
    not been told of; None if it knows all.

    Not every run is timed (`Path`). `last_ns` is what the last timed run took, `last_indexing_ns` what
    it took to bring its index up to date; others count as much.
    """

    __slots__ = (
        "before",
        "fork",
        "has_heavy_keys",
        "is_on_path",
        "is_probe",
        "is_watched",
        "last_indexing_ns",
        "last_ns",
        "make",
        "n_in",
        "n_out",
        "n_runs",
        "ns",
        "number",
        "step",
    )

    step: Step  # made when somebody first asks for it: most ways are never taken

    def __init__(self, fork: Fork, number: int, make: Callable[[], Step]) -> None:
        self.fork = fork
        self.number = number
        self.make = make
        self.is_probe = fork.candidates[number].kind == "probe"
        self.n_in = self.n_out = self.n_runs = self.ns = 0
        self.last_ns = self.last_indexing_ns = 0
        self.is_on_path = False  # of some `Path`
        self.has_heavy_keys = False  # once they were met, they are looked for (`diversion`)
        self.is_watched = False  # whether a run returned so many rows that they may be
        self.before: tuple[int, int, int, int] | None = None

    def __getattr__(self, name: str) -> Step:
        """What is not there yet: the step."""
        if name != "step":
            raise AttributeError(name)
        self.step = step = self.make()
        self.make = _no_step
        return step

    @property
    def name(self) -> str:
        """Of the module."""
        return self.fork.candidates[self.number].name

    @property
    def is_steady(self) -> bool:
        """Whether it was taken, is a look into memory, and did not multiply rows."""
        return self.is_probe and self.n_in >= max(1, self.n_out) and not self.is_watched


class Path:
    """The ways that base batches of one route take one after another, as long as all decisions on them
    stand: nothing need be looked up on the way. `leads_out` if what is left at the end is a result.

    It is for `n_left` more rows, which are not timed: a batch is taken to need as long as the last
    timed one, `last_ns`.
    """

    __slots__ = ("last_ns", "leads_out", "n_left", "ways")

    def __init__(self, ways: tuple[Way, ...], leads_out: bool, n_left: int) -> None:
        self.ways = ways
        self.leads_out = leads_out
        self.n_left = n_left
        self.last_ns = sum(way.last_ns for way in ways)


class Route:
    """One signature: the sources `live` in its tuples, the legal ways on, and the decision in force."""

    __slots__ = ("fork", "is_expanded", "live", "n_left", "path", "signature", "way", "ways")

    def __init__(self, signature: Signature, live: int = EVERYTHING) -> None:
        self.signature = signature
        self.live = live
        self.is_expanded = False
        self.fork: Fork | None = None
        self.ways: list[Way] = []
        self.way: Way  # the one decided on, once there was a decision...
        self.n_left = 0  # ...for so many more rows
        self.path: Path | None = None  # of its base batches, while they have one


class RouteTable:
    """Routes by signature, made on demand. `live` says which sources are (`core.live`), `may_fold`
    whether the last step of a route may fold its matches (`modules.folding`).
    """

    def __init__(
        self,
        expander: Expander,
        live: Callable[[Signature], int] | None = None,
        may_fold: bool = True,
    ) -> None:
        self._expander = expander
        self._live = live
        self.may_fold = may_fold
        self._routes: dict[Signature, Route] = {}
        self._entries: dict[int, Route] = {}  # of base batches, by source
        self._retired: list[Route] = []
        self.n_forks = 0
        self.n_handled = 0  # tuples that went to steps, and that came back

    def route(self, signature: Signature) -> Route:
        """The route of `signature`; its steps are worked out when a batch first takes it."""
        route = self._routes.get(signature)
        if route is None:
            live = EVERYTHING if self._live is None else self._live(signature)
            route = self._routes[signature] = Route(signature, live)
        return route

    def entry(self, source: int) -> Route:
        """The route of a base batch of `source`."""
        route = self._entries.get(source)
        if route is None:
            route = self._entries[source] = self.route(Signature(1 << source))
        return route

    def expand(self, route: Route) -> None:
        """Work out the legal steps of `route`."""
        fork, makers = self._expander(route, self)
        if fork is not None:
            route.fork = fork
            route.ways = [Way(fork, number, make) for number, make in enumerate(makers)]
            if len(makers) == 1:  # nobody is asked
                route.way, route.n_left = route.ways[0], UNTIL_REOPTIMIZED
        route.is_expanded = True

    def forget(self) -> None:
        """What is legal has changed: work all routes out anew. Only when nothing is in flight.

        What the old ones counted remains in `routes`.
        """
        self._retired += [route for route in self._routes.values() if route.is_expanded]
        self._routes.clear()
        self._entries.clear()

    def close(self) -> None:
        """No route is taken any more; the counters stay. Who expands routes knows the state, which may
        know this table: cutting the circle lets memory go with its last user, not when somebody looks
        for circles.
        """
        self._expander, self._live = _closed, None
        for route in self.routes():
            for way in route.ways:
                way.make = _no_step

    def routes(self) -> list[Route]:
        """All routes that were taken so far. Other threads may add some meanwhile."""
        current = [route for route in list(self._routes.values()) if route.is_expanded]
        return [*self._retired, *current]


def _closed(route: Route, table: RouteTable) -> tuple[Fork | None, list[Callable[[], Step]]]:
    raise AssertionError("termination: nothing is routed after the end")


def _no_step() -> Step:
    raise AssertionError("a step is made once, and none after the end")


def already(step: Step) -> Callable[[], Step]:
    """For a step that was made with its route."""
    return lambda: step
