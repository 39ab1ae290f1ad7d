"""What a migration policy chooses from: what is held, the best trees, and all parts of these.

A look weighs a dozen choices, and most looks of a query weigh the same dozen, at other sizes. So the
choices are listed once for each set of trees, together with what the kernels want to know of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from eddies.core.kernels.planning import Floats, Held, Numbers, Offers
from eddies.core.stairs.outlook import Outlook
from eddies.core.stairs.plan import Form, Forms, Planner

__all__ = ["Menu", "Menus"]

_MOST_MENUS = 64  # that are remembered


class Menu(NamedTuple):
    """`choices`, the first of which is what is held; `forms` are those of all of them, for kernels.

    `new` are the forms that some choice has and that are not held yet, `offers` the same for kernels,
    and `asks[c, f]` is 1 if choice c has the new form f.
    """

    choices: tuple[Forms, ...]
    forms: Held
    n_forms: Numbers
    new: tuple[Form, ...]
    offers: Offers
    asks: Floats


class Menus:
    """The menus of one planner."""

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self._known: dict[tuple[Forms, int, frozenset[Forms]], Menu] = {}

    def menu(self, outlook: Outlook) -> Menu:
        """What is held, the best tree for each end, and all parts of these, without forms that nobody
        would probe: all sources beyond their join have ended.
        """
        key = outlook.held, outlook.ended, frozenset(self._best_trees(outlook))
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _MOST_MENUS:
                self._known.clear()
            known = self._known[key] = self._listed(*key)
        return known

    def _best_trees(self, outlook: Outlook) -> list[Forms]:
        """For each end, the tree with the least sum of future and building costs."""
        now, later = outlook.sizes[0], outlook.sizes[1:]
        price = 2.0 * now
        price[[self.planner.number(form.mask) for form in outlook.held]] = 0.0
        return self.planner.lightest_trees((3.0 * (later - now) + price).ravel())

    def _listed(self, held: Forms, ended: int, trees: frozenset[Forms]) -> Menu:
        planner = self.planner
        parts = {part for whole in (held, *trees) for part in planner.subsets(whole)}
        probed = {
            frozenset(form for form in part if planner.beyond(form) & ~ended) for part in parts
        }
        choices = (held, *sorted(probed - {held}, key=sorted))
        new = tuple(sorted({form for forms in choices for form in forms} - held))
        asks = np.array([[float(form in forms) for form in new] for forms in choices])
        n_forms = np.array([len(forms) for forms in choices])
        listed = planner.held(choices), n_forms, new, planner.offers(new)
        return Menu(choices, *listed, asks.reshape(len(choices), len(new)))
