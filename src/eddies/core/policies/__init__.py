"""Routing policies by name; one file each. To add one, write the file and list it here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from eddies.core.policies.auto import AutoPolicy
from eddies.core.policies.base import Candidate, Decision, Fork, RoutingPolicy
from eddies.core.policies.cumulative import CumulativePolicy
from eddies.core.policies.greedy import GreedyPolicy
from eddies.core.policies.lottery import LotteryPolicy
from eddies.core.policies.lottery_window import LotteryWindowPolicy
from eddies.core.policies.naive import NaivePolicy
from eddies.core.policies.online import OnlinePolicy
from eddies.core.policies.random import RandomPolicy
from eddies.core.policies.rank import RankPolicy
from eddies.core.policies.static import StaticPolicy
from eddies.errors import OptionError

__all__ = ["POLICIES", "Candidate", "Decision", "Fork", "RoutingPolicy", "make_policy"]

PolicyMaker = Callable[[Random, Sequence[str]], RoutingPolicy]
"""Makes a policy from its random generator and `Options.order` (module names)."""

POLICIES: dict[str, PolicyMaker] = {
    "auto": lambda rng, order: AutoPolicy(rng),
    "static": lambda rng, order: StaticPolicy(order),
    "random": lambda rng, order: RandomPolicy(rng),
    "naive": lambda rng, order: NaivePolicy(rng),
    "lottery": lambda rng, order: LotteryPolicy(rng),
    "lottery-window": lambda rng, order: LotteryWindowPolicy(rng),
    "rank": lambda rng, order: RankPolicy(),
    "online": lambda rng, order: OnlinePolicy(rng),
    "greedy": lambda rng, order: GreedyPolicy(rng),
    "cumulative": lambda rng, order: CumulativePolicy(),
    "cumulative-window": lambda rng, order: CumulativePolicy(),
    "content": lambda rng, order: CumulativePolicy(),
}


def make_policy(name: str, rng: Random, order: Sequence[str] = ()) -> RoutingPolicy:
    """The policy called `name`."""
    try:
        maker = POLICIES[name]
    except KeyError:
        raise OptionError(
            f"unknown policy {name!r}; choose one of {', '.join(sorted(POLICIES))}"
        ) from None
    return maker(rng, order)
