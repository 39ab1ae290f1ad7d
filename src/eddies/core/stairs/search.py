"""When parts of the data are searched for, and by which samples.

To search costs something, and most data has no parts. So nothing is done before a query has handled as
many tuples as make a survey cheap. Then what steps find is glanced at every now and then (`drift`), and
sources are surveyed (`partitions`) if intermediate results are a good part of the work, as a whole or,
when what steps find has suddenly grown, lately: they are what parts could save. A survey that found no
parts is not soon repeated.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eddies.core.graph import Graph
from eddies.core.join_tree import JoinTree, make_join_tree
from eddies.core.modules.stem import SteM
from eddies.core.route import RouteTable
from eddies.core.stairs.chooser import make_choosers
from eddies.core.stairs.drift import Drift
from eddies.core.stairs.partitions import Lack, Parting, share_to_pay, survey
from eddies.core.stairs.statistics import Statistics
from eddies.core.stairs.tuples import History

__all__ = ["Search"]

SURVEY = (
    250_000  # tuples handled before parts are searched for: a search takes as long as ten thousand
)
STRETCH = 1.15  # of work between two glances at what steps find
DRIFTED = 1.25  # of work between two surveys, if steps find far more than before
EARLY, CALM = 1.5, 3.0  # the same if not, because rows matched too little to tell; or had no parts
COARSE = 2.5  # growth of a join until it is sampled anew, to know where nothing can be gained


class Search:
    """Looks for parts. Call `glances` often; if `is_due` after it said yes, `began` and `parting`."""

    def __init__(self, graph: Graph, stems: Sequence[SteM], seed: int) -> None:
        self.n_began_at = 0  # tuples handled, when the last survey began
        self._graph = graph
        self._stems = stems
        self._seed = seed
        self._rng: np.random.Generator | None = None
        self._drift = Drift()
        self.next_glance = SURVEY  # at which count of tuples handled to compare what steps found
        self._calm = CALM  # of work before the next survey
        self._statistics: Statistics | None = None  # before STAIRs were made

    @property
    def has_drifted(self) -> bool:
        """Whether steps found far more than before, as of the last glance."""
        return self._drift.has_drifted

    def glances(self, n_handled: int, tables: Sequence[RouteTable]) -> bool:
        """Whether it was time to compare what steps found with what they found before."""
        if n_handled < self.next_glance:
            return False
        self.next_glance = int(STRETCH * n_handled) + SURVEY // 5
        self._drift.glance(route for table in tables for route in table.routes())
        return True

    def is_due(self, n_handled: int) -> bool:
        """Whether a survey may be worth its price."""
        if n_handled < (DRIFTED if self.has_drifted else self._calm) * self.n_began_at:
            return False
        if self.has_drifted:  # then what is to come is like what came lately
            return self._drift.share_lately > share_to_pay()
        return self._drift.n_intermediate > share_to_pay() * n_handled

    def began(self, n_handled: int) -> None:
        """A survey begins."""
        self.n_began_at = n_handled

    def parting(self, sampled: Statistics | None) -> Parting | None:
        """The first source that has parts. `sampled` is what STAIRs know, if there are any."""
        n_rows = [self._stems[role.relation].store.n_rows for role in self._graph.roles]
        if not all(n_rows):
            return None
        tree = make_join_tree(self._graph)
        self._rng = rng = self._rng or np.random.default_rng(self._seed)
        statistics = self._known(tree, sampled)
        stores = [stem.store for stem in self._stems]
        self._calm = CALM
        for chooser in make_choosers(self._graph, tree, stores, by_content=True).values():
            found = survey(chooser, n_rows, statistics, rng, has_drifted=self.has_drifted)
            if isinstance(found, Parting):
                return found
            if found is Lack.MATCHES:
                self._calm = EARLY
        return None

    def _known(self, tree: JoinTree, sampled: Statistics | None) -> Statistics:
        """What the last look has sampled; before the first one, samples of our own. Those of STAIRs are
        not taken anew: it must not depend on surveys what they decide.
        """
        if sampled is not None and sampled.n_samples:
            return sampled
        if self._statistics is None:
            history = History(len(self._graph.roles))
            self._statistics = Statistics(self._graph, tree, self._stems, history)
        self._statistics.refresh(COARSE)
        return self._statistics
