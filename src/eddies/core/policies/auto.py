"""The default policy: order by what is measured, look aside rarely, believe the present.

*Ranking.* At a fork, the candidate with the smallest rank (selectivity - 1) / cost goes first: the
order that removes most rows per nanosecond, which is optimal for independent modules. A module may
be reachable only through another; a join that doubles the rows but leads to one that keeps a
hundredth of them must beat a filter that keeps nine tenths. So a candidate is ranked together with
the best sequence of modules it opens, (product of selectivities - 1) / (cost of the sequence), as
in the Ibaraki-Kameda-Krishnamurthy-Boral-Zaniolo algorithm, `LOOKAHEAD` modules deep.

*Evidence* is kept by `evidence.Ledger`: figures per (module, signature), mixed with the module's
figures over all signatures, faded by rows seen, replaced when a run contradicts them.

*Exploration* is paid from an account. It earns `EXPLORED_SHARE` of all measured time, and pays for
every slice of rows that was sent another way than the best known one: what the slice cost more than
it would have, never less than a quarter of its time, and the fixed price of its runs and decisions.

A shift is when it pays to look around, and a calm before it may have spent everything. So after one
the account may be overdrawn by as much as it ever earned until then.

*Starting.* The first rows go the way of the text, and all modules on that way are met. That costs
nothing; what must be kept small is the surprise. An unknown predicate is tried on 1, 32 and 1024 rows,
the next step only if the last one was quick: it may sleep for seconds. A slow first step is repeated
once; it may have been the first call that was slow. An unknown probe is tried on 32 rows, since it may
find thousands for each; but if the state knows that it cannot, because keys are unique, then on as many
as there are. Where a module never was, a slice has 32 rows, whatever it did elsewhere: a key that is
unique at one fork may fan out at another. At a fork that has seen few rows even the best known way is
taken only for as many rows as the fork has seen before, so that the first batch is not lost to the
first impression.

Known limitations: modules are taken to be independent given the signature, so where correlation
makes greedy ordering fail, it fails (never by more than a factor four for filters). A Cartesian
product is taken only where nothing else is legal, although with tiny sources it can be best.
"""

from __future__ import annotations

import math
import random
from typing import NamedTuple

from eddies.core.lineage import Signature
from eddies.core.policies.base import (
    DECIDING_NS,
    NEWS_NS,
    WORTH_DECISIONS,
    WORTH_ROWS,
    Decision,
    Fork,
    until_reoptimized,
)
from eddies.core.policies.evidence import JUDGE_ROWS, Estimate, Evidence, Ledger, Place
from eddies.core.policies.measure import without_cross

__all__ = ["EXPLORED_SHARE", "LOOKAHEAD", "QUICK_NS", "SAVED_NS", "AutoPolicy"]

EXPLORED_SHARE = 0.01  # of measured time: earned by the account that pays for exploration
SAVED_SHARE = 0.25  # of all earnings, kept at most: a long calm must not pay for a splurge...
SAVED_NS = 250_000.0  # ...but always so much: some slices of a usual SteM
TRIAL_ROWS = (1, 32, 1024)  # first steps with an unknown module
QUICK_NS = 1_000_000  # a step below is followed by the next: 32 times the rows, so at most 32 ms
VERY_QUICK_NS = QUICK_NS // 32  # a step below may be followed by the one after the next
TRIAL_RESULTS = 8192.0  # most rows a step should return: a fan-out is known after the second step
SLICE_ROWS = 2048  # of later exploration; fewer would measure the price of a run, not of rows
LONG_SLICE_ROWS = 16_384  # if it may be the best: what a row costs in a long run is known then
SETTLED_ROWS = 4096  # of a usual run at a fork, and what a row costs there is known
SHORT_RUN = 4.0  # times what a row costs in a long run, at most
FIRST_LOOK_ROWS = 32  # of a slice where a module never ran: its fan-out here is unknown
FEW_MATCHES = 8.0  # a first look that found no more than this for each row is followed by a slice
MIN_SLICE_ROWS = 64  # below, a run costs more than its rows...
DEAR_NS = 50_000.0  # ...unless a row costs as much as a run
STALE_AFTER_ROWS = 131_072  # driver rows after which figures are worth a new look
CAUTIOUS_ROWS = 65_536  # until a fork has seen them, a decision holds for a part of a batch only
FIRST_ROWS = 4096  # of the first decision at a fork; the next ones hold for...
GROWTH = 3  # ...so many times the rows seen
SURE_ROWS = 16_384  # of any decision that is about so few, if they cannot or did not multiply
THINK_NS = WORTH_DECISIONS * DECIDING_NS  # of work, at least, between two decisions at a new fork
WORTH_NS = 2_000_000  # of work, at least, between two countings-in of a calm period
MUCH_CHEAPER = 0.5  # share of what two modules cost in the order of their ranks
LOOKAHEAD = 3  # modules ranked together with the candidate that opens them


class _Slice(NamedTuple):
    """Rows sent to explore.

    What the modules they should have met first keep and cost per row, and the fixed price of runs.
    """

    n_rows: int
    kept: float
    saved_ns: float
    price_ns: float


class _Standing(NamedTuple):
    """A decision for the best known way, which is repeated until a new period begins or the place has
    seen `upto_rows` rows.
    """

    fork: Fork
    period: int
    place: Place
    upto_rows: int
    decision: Decision


class _Latest(NamedTuple):
    """The latest decision at a fork by all that is known; work done and rows seen there by then."""

    fork: Fork
    choice: int
    at_ns: float
    place: Place
    at_rows: int


class _Trial:
    """The first steps of a module."""

    __slots__ = ("elapsed_ns", "n_slow", "step")

    def __init__(self) -> None:
        self.step = 0
        self.n_slow = 0
        self.elapsed_ns: int | None = None  # of the last step, once it was observed

    @property
    def is_open(self) -> bool:
        """Whether a step is still to be made or to be observed."""
        return self.step < len(TRIAL_ROWS) or self.elapsed_ns is None


class AutoPolicy:
    """Cost-based ranking with a budget for exploration.

    Explores: candidates whose figures at this fork are older than `STALE_AFTER_ROWS` driver rows or
    that never ran here, the oldest first, on slices of `SLICE_ROWS` rows; all candidates of a fork
    when one of them suddenly behaves differently; what may be the best, once on `LONG_SLICE_ROWS`.
    Exploration costs: `EXPLORED_SHARE` of the measured time, twice that after a shift. Not paid from
    the account: trials of each module (up to 1057 rows of a predicate, 33 of a probe, a few if it is
    slow), and a hope for each module at a fork and after a shift, on no more rows than the fork saw.
    Forgets: a fifth of the weight of its figures per 64 Ki driver rows; at once what is
    contradicted.
    Decides: once per fork and re-optimization, and after every slice. Asked more often than deciding
    is worth (`WORTH_NS`, or where it still learns `THINK_NS`), it repeats itself, unless a run
    surprised it, rows multiply or it is exploring.
    Worst case: a shift costs one re-optimization period in the old order if it shows in a module
    that is used. If only an unused module improved, it is found when the account can pay a slice: a
    few periods, or a dozen if a period is so little work that the runs of a slice are a part of it.
    If things change as fast as decisions, up to half as much again as the best fixed order.
    """

    every_batch = False
    diverts = True

    def __init__(
        self,
        rng: random.Random,
        *,
        explored_share: float = EXPLORED_SHARE,
    ) -> None:
        self._rng = rng
        self._explored_share = explored_share
        self._account_ns = 0.0
        self._credit_ns = 0.0
        self._n_shifts = 0
        self._ledger = Ledger()
        self._forks: dict[Signature, Fork] = {}
        self._modules_at: dict[Signature, frozenset[int]] = {}
        self._met: set[int] = set()  # modules that there was a choice about
        self._drivers: set[int] = set()  # sources whose batches came, as masks
        self._trials: dict[int, _Trial] = {}
        self._trial_of: dict[Evidence, _Trial] = {}
        self._slices: dict[Evidence, _Slice] = {}
        self._is_hoping = False  # rows were sent on a hope, and what came of it is not counted in
        self._is_learning = True  # some module is new: every run counts at once
        self._period = 0  # counts re-optimizations that were worth it
        self._standing: dict[int, _Standing] = {}  # by the number of a fork
        self._latest: dict[int, _Latest] = {}  # the same

    def observe(
        self, fork: Fork, choice: int, n_in: int, n_out: int, elapsed_ns: int, n_runs: int = 1
    ) -> None:
        """Only sums; see `Ledger`."""
        self._ledger.observe(fork, choice, n_in, n_out, elapsed_ns, n_runs)

    @property
    def news_ns(self) -> int:
        """Everything at once while rows are on their way that were sent to find something out."""
        return 0 if self._is_looking and not self._is_patient else NEWS_NS

    @property
    def _is_looking(self) -> bool:
        """Whether rows are on their way that were sent to find something out."""
        return bool(self._is_learning or self._is_hoping or self._slices or self._trial_of)

    @property
    def _is_patient(self) -> bool:
        """Whether what there is to learn may wait until it is worth its time: modules that were not met
        yet, where one relation drives. Where several do, more arrives at all forks, and first
        impressions are soon wrong.
        """
        return len(self._drivers) < 2 and not (self._is_hoping or self._slices)

    def reoptimize(self) -> bool:
        """Counts in what was observed, if that is worth it. Fading goes by rows, so calling this often
        does no harm.
        """
        if self._has_little_news():
            return True
        self._absorb()
        self._period += 1
        self._ledger.is_surprised = False
        self._slices.clear()
        for trial in self._trial_of.values():  # its rows never came: the step is still to be made
            trial.step -= 1
            trial.elapsed_ns = 0
        self._trial_of.clear()
        is_open = any(trial.is_open for trial in self._trials.values())
        self._is_learning = is_open or not self._met <= self._trials.keys()
        return False

    def _has_little_news(self) -> bool:
        ledger = self._ledger
        if ledger.is_surprised:
            return False
        if self._is_looking:
            if not self._is_patient:
                return False
            return ledger.ns_unabsorbed < THINK_NS and ledger.n_unabsorbed < SURE_ROWS
        worth_ns = max(WORTH_NS, THINK_NS * len(self._standing))
        return ledger.ns_unabsorbed < worth_ns and ledger.n_unabsorbed < WORTH_ROWS

    def choose(self, fork: Fork) -> Decision:
        """A trial if a module is unknown, a slice if one is stale, else the best known."""
        standing = self._standing.get(fork.fork_id)
        if (
            standing is not None
            and standing.fork is fork
            and standing.period == self._period
            and standing.place.n_rows < standing.upto_rows
        ):
            return standing.decision
        latest = self._latest.get(fork.fork_id)
        if latest is not None and latest.fork is fork and self._is_patient:
            repeated = self._repeated(latest)
            if repeated is not None:
                return repeated
        decision = self._decided(fork)
        place = self._ledger.place(fork.signature)
        latest = _Latest(fork, decision.choice, self._worked_ns, place, place.n_rows)
        self._latest[fork.fork_id] = latest
        return decision

    @property
    def _worked_ns(self) -> float:
        """The work that was observed."""
        return self._ledger.elapsed_ns + self._ledger.ns_unabsorbed

    def _repeated(self, latest: _Latest) -> Decision | None:
        """The latest decision, for as many rows as will likely take until it is worth to decide anew;
        None if it is, or if rows multiply.
        """
        left_ns = THINK_NS - (self._worked_ns - latest.at_ns)
        left_rows = SURE_ROWS - (latest.place.n_rows - latest.at_rows)
        if left_ns <= 0.0 or left_rows <= 0 or self._ledger.is_surprised:
            return None
        evidence = self._ledger.at(latest.fork)[latest.choice]
        past = evidence.past
        n_in = past.n_in + evidence.n_in
        if not n_in or past.n_out + evidence.n_out > n_in:
            return None
        ns = past.elapsed_ns + evidence.elapsed_ns
        n_rows = left_ns * n_in / ns if ns else left_rows
        if ns < QUICK_NS:  # most of it was the price of runs
            n_rows = max(n_rows, TRIAL_ROWS[1] * n_in)
        n_rows = int(min(left_rows, n_rows))
        if not n_rows:
            return None
        return Decision(latest.choice, n_rows, self._n_sure(latest.fork, latest.choice))

    def _decided(self, fork: Fork) -> Decision:
        """A decision by all that is known."""
        self._remember(fork)
        if len(fork.candidates) == 1:
            return until_reoptimized(0)
        place = self._ledger.place(fork.signature)
        is_new = place.n_rows < CAUTIOUS_ROWS and self._ledger.n_unabsorbed >= FIRST_ROWS
        if self._is_learning or self._slices or self._is_hoping or is_new:
            self._absorb()
        choices = without_cross(fork)
        evidence = self._ledger.at(fork)
        if not fork.candidates[choices[0]].cross and self._is_learning:
            for i in choices:
                self._slices.pop(evidence[i], None)
                n_rows = self._next_trial(fork, i, evidence[i])
                if n_rows:
                    return Decision(i, n_rows, self._n_sure(fork, i))
        ranked = []
        for i in choices:
            estimate = self._ledger.estimate(evidence[i])
            if estimate is None:  # a product, or a module under trial at another fork
                return Decision(i, TRIAL_ROWS[0])
            sequence = self._with_what_it_opens(fork, i, estimate)
            ranked.append((sequence.rank, i, estimate))
        ranked.sort()
        if len(ranked) == 2 and self._is_better_last(fork, *ranked):
            ranked.reverse()
        best = ranked[0][1]
        if not fork.candidates[best].cross:
            decision = self._hope(fork, ranked, evidence) or self._explore(place, ranked, evidence)
            if decision is not None:
                self._standing.pop(fork.fork_id, None)  # what comes of it is looked at
                return decision
        decision, upto_rows = until_reoptimized(best), 2**62
        if place.n_rows < CAUTIOUS_ROWS:
            known = evidence[best].past
            is_calm = JUDGE_ROWS <= known.n_in >= known.n_out
            n_rows = max(SURE_ROWS if is_calm else FIRST_ROWS, GROWTH * place.n_rows)
            decision = Decision(best, n_rows, self._n_sure(fork, best))
            upto_rows = place.n_rows + n_rows
        self._standing[fork.fork_id] = _Standing(fork, self._period, place, upto_rows, decision)
        return decision

    @staticmethod
    def _n_sure(fork: Fork, choice: int) -> int:
        """`Decision.n_found` for a probe: state in memory is never slow. A predicate may be."""
        return SURE_ROWS if fork.candidates[choice].kind == "probe" else 0

    @property
    def is_surprised(self) -> bool:
        """Whether a run since the last `reoptimize` contradicted what was believed."""
        return self._ledger.is_surprised

    @property
    def account_ns(self) -> float:
        """What exploration may cost now; negative if slices cost more than expected."""
        return self._account_ns

    def _remember(self, fork: Fork) -> None:
        """Keep the widest fork of each signature; hosts with queues also show narrow ones."""
        known = self._forks.get(fork.signature)
        if known is None or len(known.candidates) < len(fork.candidates):
            modules = frozenset(c.module for c in fork.candidates)
            if not modules <= self._trials.keys():
                self._is_learning = True
            if len(fork.connected) > 1:
                self._met.update(fork.candidates[i].module for i in fork.connected)
            if self._ledger.place(fork.signature).is_entry:
                self._drivers.add(fork.signature.sources)
            self._forks[fork.signature] = fork
            self._modules_at[fork.signature] = modules

    def _absorb(self) -> None:
        self._is_hoping = False
        share = self._explored_share
        for evidence, n_in, n_out, elapsed_ns in self._ledger.absorb():
            self._account_ns += share * elapsed_ns
            trial = self._trial_of.pop(evidence, None)
            if trial is not None:
                trial.elapsed_ns = elapsed_ns
                if n_in >= JUDGE_ROWS:
                    trial.step = len(TRIAL_ROWS)
            explored = self._slices.get(evidence)
            if explored is not None and n_in:
                # The modules it jumped over would have spared it some rows, and are spared some.
                part = min(1.0, explored.n_rows / n_in)
                extra_ns = elapsed_ns * (1.0 - explored.kept) - (n_in - n_out) * explored.saved_ns
                self._account_ns -= part * max(extra_ns, 0.25 * elapsed_ns)
                self._account_ns -= part * explored.price_ns
        if self._ledger.n_shifts > self._n_shifts:
            self._n_shifts = self._ledger.n_shifts
            self._credit_ns = share * self._ledger.elapsed_ns
        most_ns = max(SAVED_NS, SAVED_SHARE * share * self._ledger.elapsed_ns)
        self._account_ns = min(self._account_ns, most_ns)

    def _next_trial(self, fork: Fork, choice: int, evidence: Evidence) -> int:
        """Rows of the next step with this module; 0 if it is known well enough or under trial."""
        candidate = fork.candidates[choice]
        trial = self._trials.get(candidate.module)
        if trial is None:
            trial = self._trials[candidate.module] = _Trial()
            is_known = evidence.module.total.n_in >= JUDGE_ROWS  # it was met elsewhere
            opens = candidate.kind == "probe" and fork.leads_to[choice] not in self._forks
            if is_known and (len(self._drivers) > 1 or not opens):
                trial.step, trial.elapsed_ns = len(TRIAL_ROWS), 0
                return 0
            if candidate.kind == "probe" and self._ledger.version:
                # State in memory is never that slow, and what the first call costs has been paid.
                trial.step = 1
        elif trial.step >= len(TRIAL_ROWS) or trial.elapsed_ns is None:
            return 0
        elif trial.elapsed_ns >= QUICK_NS:
            trial.n_slow += 1
            if trial.n_slow > 1:
                trial.step = len(TRIAL_ROWS)
                return 0
            trial.step = max(trial.step - 1, 0)
        elif candidate.kind == "probe" and trial.step == len(TRIAL_ROWS) - 1:
            trial.step = len(TRIAL_ROWS)  # how many matches it finds is known, and how quickly
            return 0
        elif trial.step == 1 and trial.elapsed_ns < VERY_QUICK_NS and candidate.kind != "probe":
            trial.step = 2
        n_rows = TRIAL_ROWS[trial.step]
        estimate = self._ledger.estimate(evidence)
        if estimate is not None and estimate.selectivity * n_rows > TRIAL_RESULTS:
            n_rows = max(1, int(TRIAL_RESULTS / estimate.selectivity))
        trial.step += 1
        trial.elapsed_ns = None
        self._trial_of[evidence] = trial
        return n_rows

    def _is_better_last(
        self,
        fork: Fork,
        first: tuple[float, int, Estimate],
        second: tuple[float, int, Estimate],
    ) -> bool:
        """Whether the candidate of the least rank, of two, is much cheaper after the other one. Ranks
        suppose that it costs the same at both places; but what a last probe folds costs no matches.
        """
        passed = {candidate.module for candidate in fork.candidates}

        def cost_ns(one: tuple[float, int, Estimate], other: tuple[float, int, Estimate]) -> float:
            after, module = fork.leads_to[one[1]], fork.candidates[other[1]].module
            if not self._modules_at.get(after, frozenset()) <= passed:
                return math.inf
            then = self._ledger.evidence(after, module)
            then_ns = then.own.cost_ns if then.past.n_in >= JUDGE_ROWS else other[2].cost_ns
            return one[2].cost_ns + one[2].selectivity * then_ns

        return cost_ns(second, first) < MUCH_CHEAPER * cost_ns(first, second) < math.inf

    def _with_what_it_opens(self, fork: Fork, choice: int, estimate: Estimate) -> Estimate:
        here = self._modules_at[fork.signature]
        return self._sequence(estimate, fork.leads_to[choice], here, LOOKAHEAD)[0]

    def _sequence(
        self, sequence: Estimate, signature: Signature, passed: frozenset[int], depth: int
    ) -> tuple[Estimate, Signature]:
        """`sequence`, which ends at `signature`, and then what improves its rank.

        Only modules that were not legal before count: the others can go first by themselves.
        """
        for _ in range(depth):
            opened = self._modules_at.get(signature, passed) - passed
            if not opened:
                break
            fork = self._forks[signature]
            best: tuple[Estimate, Signature] | None = None
            for i, candidate in enumerate(fork.candidates):
                if candidate.module not in opened or candidate.cross:
                    continue
                step = self._ledger.estimate(self._ledger.evidence(signature, candidate.module))
                if step is None:
                    continue
                branch = self._sequence(step, fork.leads_to[i], passed | opened, depth - 1)
                if best is None or branch[0].rank < best[0].rank:
                    best = branch
            if best is None or best[0].rank >= sequence.rank:
                break
            sequence, signature = sequence.then(best[0]), best[1]
        return sequence, signature

    def _hope(
        self, fork: Fork, ranked: list[tuple[float, int, Estimate]], evidence: list[Evidence]
    ) -> Decision | None:
        """A long slice for a module that would be the best if it cost as little as it might.

        A short run finds caches filled by others, and deep in a route keys are gathered first: a row
        may cost several times what it costs here in a long run. Only a long run here can tell, so
        there is one, unless there was. As long as rows are few, they are not spent on hopes.
        """
        rank, _, best = ranked[0]
        place = evidence[0].place
        for _, i, estimate in ranked[1:]:
            known = evidence[i]
            past = known.past
            if known.was_hoped or past.n_in >= SETTLED_ROWS * max(1.0, past.n_runs):
                continue
            cost_ns = max(best.cost_ns, estimate.cost_ns / SHORT_RUN)
            if Estimate(estimate.selectivity, cost_ns).rank >= rank:
                continue
            n_rows = int(min(LONG_SLICE_ROWS, TRIAL_RESULTS / max(estimate.selectivity, 0.5)))
            if place.n_hoped + n_rows > place.n_rows:
                continue
            place.n_hoped += n_rows
            self._is_hoping = True
            if not past.n_in:
                return Decision(i, FIRST_LOOK_ROWS, self._n_sure(fork, i))
            known.was_hoped = True
            return Decision(i, n_rows)
        return None

    def _explore(
        self,
        place: Place,
        ranked: list[tuple[float, int, Estimate]],
        evidence: list[Evidence],
    ) -> Decision | None:
        """A slice for the stalest candidate that the account can pay, or None."""
        now = self._ledger.n_driver_rows
        kept, saved_ns = 1.0, 0.0
        price_ns = (self._ledger.run_price_ns + DECIDING_NS) * len(ranked)  # a batch of its own
        if self._account_ns + self._credit_ns <= price_ns:
            return None
        chosen: tuple[float, int, _Slice] | None = None
        for _, i, estimate in ranked:
            known = evidence[i]
            age = float(now - known.at_rows)
            seen = known.past.n_in
            fans_out = seen and known.past.n_out > FEW_MATCHES * seen
            if fans_out:  # others' figures, however many, say nothing of how many matches are here
                estimate = known.own
            if known.is_stale or (seen <= FIRST_LOOK_ROWS and not fans_out):
                age += 1e18 if not seen else 1e9
            if age > STALE_AFTER_ROWS and i != ranked[0][1]:
                extra_ns = max(
                    estimate.cost_ns * (1.0 - kept) - (1.0 - estimate.selectivity) * saved_ns,
                    0.25 * estimate.cost_ns,
                )
                allowed_ns = self._account_ns + self._credit_ns - price_ns
                n_rows = int(min(SLICE_ROWS, allowed_ns / extra_ns))
                least = 1 if estimate.cost_ns > DEAR_NS else MIN_SLICE_ROWS
                if seen:
                    most = max(TRIAL_RESULTS / max(estimate.selectivity, 1.0), least)
                else:
                    most = FIRST_LOOK_ROWS
                    least = min(least, most)
                n_rows = min(n_rows, int(most))
                if n_rows >= least and (chosen is None or age > chosen[0]):
                    chosen = (age, i, _Slice(n_rows, kept, saved_ns, price_ns))
            saved_ns += kept * estimate.cost_ns
            kept *= min(estimate.selectivity, 1.0)
        if chosen is None:
            return None
        age, i, explored = chosen
        if age < 1e9 and not place.was_delayed and place.n_rows >= CAUTIOUS_ROWS:
            # Not always the first rows of a batch: they may differ from the others.
            place.was_delayed = True
            return Decision(ranked[0][1], self._rng.randrange(1, CAUTIOUS_ROWS // 2))
        place.was_delayed = False
        self._slices[evidence[i]] = explored
        return Decision(i, explored.n_rows)
