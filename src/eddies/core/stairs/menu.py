"""What a migration policy chooses from: what is held, the best trees, and all parts of these.

A look weighs a dozen choices, and most looks of a query weigh the same dozen, at other sizes. So the
choices are listed once for each set of trees, together with what the kernels want to know of them; all
eddies of a process whose join trees have the same shape use the same lists.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from eddies.core.kernels.weighing import Choices
from eddies.core.stairs.outlook import Outlook
from eddies.core.stairs.plan import Form, Forms, Planner

__all__ = ["Menu", "Menus"]

_MOST_MENUS = 64  # that are remembered


class Menu(NamedTuple):
    """Choices, the first of which is what is held; `new` are the forms that some choice has and that
    are not held yet; `listed` is the same for kernels.
    """

    choices: tuple[Forms, ...]
    new: tuple[Form, ...]
    listed: Choices


class Menus:
    """The menus of one planner."""

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self._known: dict[tuple[Forms, int, frozenset[Forms]], Menu] = planner.menus

    def menu(self, outlook: Outlook) -> Menu:
        """What is held, the best tree for each end, and all parts of these, without forms that nobody
        would probe: all sources beyond their join have ended.
        """
        trees = frozenset(self.planner.best_trees(outlook.ahead, outlook.held))
        key = outlook.held, outlook.ended, trees
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _MOST_MENUS:
                self._known.clear()
            known = self._known[key] = self._listed(*key)
        return known

    def _listed(self, held: Forms, ended: int, trees: frozenset[Forms]) -> Menu:
        planner = self.planner
        parts = {part for whole in (held, *trees) for part in planner.subsets(whole)}
        probed = {
            frozenset(form for form in part if planner.beyond(form) & ~ended) for part in parts
        }
        choices = (held, *sorted(probed - {held}, key=sorted))
        new = tuple(sorted({form for forms in choices for form in forms} - held))
        asks = np.array([float(form in forms) for forms in choices for form in new])
        n_forms = np.array([len(forms) for forms in choices])
        listed = Choices(planner.held(choices), planner.offers(new), asks, n_forms)
        return Menu(choices, new, listed)
