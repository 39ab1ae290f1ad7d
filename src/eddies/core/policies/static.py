"""A fixed order: what an optimizer would have decided, run by the same eddy (section 4 of Eddies).

Static plans are what adaptive ones are compared with, so they must pay for the same modules and the
same routing. Names are those of the modules, "stem:orders" or "select:price > 10"; the part after
the colon is enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eddies.core.policies.base import Decision, Fork
from eddies.errors import OptionError

__all__ = ["StaticPolicy", "check_order"]


def check_order(order: Sequence[str], names: Iterable[str]) -> None:
    """Refuse an order that does not name every module in `names`, or names something else.

    For hosts, which know all modules before the first row; a policy sees a name only at its fork.

    >>> check_order(["orders", "select:f"], ["stem:orders", "select:f"])
    """
    known = list(names)
    listed = set(order)
    for entry in order:
        if not any(entry in _accepted(name) for name in known):
            raise OptionError(
                f"order names {entry!r}, which is no module of this query; "
                f"its modules are {', '.join(sorted(known))}"
            )
    for name in known:
        if listed.isdisjoint(_accepted(name)):
            raise _missing(name, order)


def _accepted(name: str) -> tuple[str, str]:
    return name, name.partition(":")[2] or name


def _missing(name: str, order: Sequence[str]) -> OptionError:
    return OptionError(
        f"order={tuple(order)!r} does not say when to visit module {name!r}; "
        f"add {name!r} or {_accepted(name)[1]!r} to it"
    )


class StaticPolicy:
    """Of the modules a batch may visit, takes the one named first in `order`.

    Explores: nothing.
    Exploration costs: nothing.
    Forgets: has nothing to forget.
    Decides: once per fork and re-optimization, always the same.
    Worst case: the order is the worst one, by any factor; nothing will correct it.
    """

    is_surprised = False
    news_ns = None
    every_batch = False
    diverts = False

    def __init__(self, order: Sequence[str]) -> None:
        self._order = tuple(order)
        self._place_by_name: dict[str, int] = {}
        for place, name in enumerate(self._order):
            if self._place_by_name.setdefault(name, place) != place:
                raise OptionError(f"order names {name!r} twice; name each module once")

    def choose(self, fork: Fork) -> Decision:
        """The candidate with the first place; `OptionError` if a candidate has none."""
        places = [self._place(candidate.name) for candidate in fork.candidates]
        return Decision(places.index(min(places)))

    def observe(
        self, fork: Fork, choice: int, n_in: int, n_out: int, elapsed_ns: int, n_runs: int = 1
    ) -> None:
        """Nothing is learned."""

    def reoptimize(self) -> None:
        """Nothing changes."""

    def _place(self, name: str) -> int:
        places = [
            self._place_by_name[text] for text in _accepted(name) if text in self._place_by_name
        ]
        if not places:
            raise _missing(name, self._order)
        return min(places)
