"""The seam between mechanism and policy: who may go where is given, which way is best is asked.

The eddy shows a policy a `Fork`: a signature and the modules `constraints` allows next. The policy
answers with a `Decision`: which of them, and for how many rows. After the module ran, the policy is
told what came of it. It sees neither rows nor modules, so no policy can make an answer wrong; the
worst it can do is waste work.

Order of calls (several threads share a policy, each through a view of its own, see `shared`):

    decision = policy.choose(fork)             # when the fork has no decision in force
    policy.observe(fork, choice, n_in, n_out, elapsed_ns)   # after every module run, see `news_ns`
    policy.reoptimize()                        # at a safe point, every `reoptimize_every` rows

A decision stays in force for its fork until `n_rows` rows took it or until the next `reoptimize`
(section 3.2 of the overhead study: decide once every k tuples). A batch is cut to the rows of a new
decision; if it has more rows than are left of an old one, it is decided about anew. A policy with
`every_batch` is asked again for every batch: lotteries must draw. `is_surprised` asks for an early
`reoptimize`, because a module behaved differently than before.

To tell a policy of a run on few rows costs as much as the run. So a policy may have it that runs are
summed up: with `news_ns`, it is told (and re-optimized) at the first safe point after so much work, or
after `NEWS_ROWS` rows. Whenever it is asked, it knows everything. Of small batches that all go the same
way few are timed then, the others are taken to need as long (`route.Path`): unless it says, by zero,
that it wants to find something out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Literal, Protocol

from eddies.core.lineage import Signature

__all__ = [
    "DECIDING_NS",
    "NEWS_NS",
    "NEWS_ROWS",
    "WORTH_DECISIONS",
    "WORTH_ROWS",
    "Candidate",
    "Decision",
    "Fork",
    "RoutingPolicy",
    "until_reoptimized",
]

DECIDING_NS = 15_000.0  # what a decision takes
WORTH_DECISIONS = (
    50  # times what it takes to decide anew at all forks is work worth new decisions...
)
WORTH_ROWS = 65_536  # ...or so many rows, should they take no time
NEWS_NS = 500_000  # of work, at most, between a surprise and its discovery, where runs are short
NEWS_ROWS = 16_384  # driver rows after which a policy is told of them, should they take no time


@dataclass(frozen=True, slots=True)
class Candidate:
    """A module that may be next. `module` is its number in the eddy, the same at every fork.

    `kind` is "probe" (look for partners in a SteM or join) or "select" (apply a predicate).
    `cross` marks a probe without any predicate: a Cartesian product. `forecast`, where the state can
    tell, is the number of tuples that come of one tuple joined with everything beyond the module; of a
    product, with the module itself.
    """

    module: int
    name: str
    kind: Literal["probe", "select"]
    cross: bool = False
    forecast: Callable[[], float] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Fork:
    """A signature and where it may go. `fork_id` counts from zero in order of first use.

    `leads_to[i]` is the signature after candidate i; `connected` are the candidates that are no
    Cartesian product.
    """

    fork_id: int
    signature: Signature
    candidates: tuple[Candidate, ...]
    leads_to: tuple[Signature, ...]
    connected: tuple[int, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        connected = [i for i, candidate in enumerate(self.candidates) if not candidate.cross]
        object.__setattr__(self, "connected", tuple(connected))


@dataclass(frozen=True, slots=True)
class Decision:
    """Take `fork.candidates[choice]` for at most `n_rows` rows (None: until re-optimization).

    The policy cannot see whether rows may multiply, but the state sometimes can, as where keys are
    unique. So a decision may say that the batch it is about may have more rows than `n_rows`, if no
    more than `n_found` can come of them.
    """

    choice: int
    n_rows: int | None = None
    n_found: int = 0


@cache
def until_reoptimized(choice: int) -> Decision:
    """The decision for `choice` that is in force until the next re-optimization. Made once: policies
    say it after every re-optimization.
    """
    return Decision(choice)


class RoutingPolicy(Protocol):
    """See the module docstring for the order of calls."""

    every_batch: bool

    @property
    def news_ns(self) -> int | None:
        """None: it is told of every run at once. Else runs with the same module at the same fork are
        summed up until they, and others, took so many nanoseconds; this may change.
        """
        ...

    @property
    def diverts(self) -> bool:
        """Whether rows with heavy keys may leave their batch (`eddies.core.diversion`)."""
        ...

    @property
    def is_surprised(self) -> bool:
        """Whether the next safe point should be used even if it comes early."""
        ...

    def choose(self, fork: Fork) -> Decision:
        """Which way now. Called only for forks with at least one candidate."""
        ...

    def observe(
        self, fork: Fork, choice: int, n_in: int, n_out: int, elapsed_ns: int, n_runs: int = 1
    ) -> None:
        """`n_in` rows went to `fork.candidates[choice]`, `n_out` came back, in `elapsed_ns`: in so many
        runs together, if they are summed up. No rows in: the rest of a run that was paused.
        """
        ...

    def reoptimize(self) -> bool | None:
        """A safe point: forget what is old; all decisions in force end here. Unless it returns True:
        nothing has changed, and to ask again would be a waste of time.
        """
        ...
