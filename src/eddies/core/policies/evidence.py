"""What the default policy believes: figures per (module, signature) that fade, mix and give way.

    ledger.observe(...)      after every run; sums up, nothing else (it must take less than 1 us)
    ledger.absorb()          counts in what was summed up; before anything is read
    ledger.estimate(...)     selectivity and cost of a module at a signature

*Fading.* A figure's weight falls by a fifth per `FADE_ROWS` driver rows: rows of a batch at its
first fork, so that the depth of the query and the size of batches do not matter. The past never
weighs more than `PAST_WEIGHT` times the newest runs.

*Mixing.* Where a module has not been at a signature, or long ago, its figures over all signatures
speak, as if they were `SHARED_ROWS` rows measured here.

*Giving way.* If runs contradict the past (selectivity differs by more than chance explains, or the
module became clearly faster; a clock can only be late by accident, not early), the past of that
module is dropped, and its figures elsewhere and those of its rivals count as stale. A run that comes
as a surprise begins a new sum: mixed with a long calm before it, a shift would not be seen. Unless
surprises are usual here: if one follows another too soon, more runs must be calm before the next
counts as a shift, so that batches that differ now and then are averaged.

*Cost* is time per row without the fixed price of a run, which is the shortest run ever seen on a few
rows: it does not depend on the order of modules, and modules that get few rows would look dear if it
were counted. Runs on few rows are mostly price and noise; what they leave open (up to `DOUBT` times
the price) is taken to be as usual, the cost of long runs of any module. And a run that took far longer
than expected may have been interrupted, so costs rise by at most a factor `LATE` a run.
"""

from __future__ import annotations

import math
from operator import add
from typing import NamedTuple

from eddies.core.lineage import Signature
from eddies.core.policies.base import Fork
from eddies.core.policies.measure import MIN_COST_NS, Tally

__all__ = ["Estimate", "Evidence", "Ledger", "Place"]

FADE_ROWS = 65_536
FADE_RATE = -math.log(0.8) / FADE_ROWS
PAST_WEIGHT = 3.0
SHARED_ROWS = 64.0
TINY_ROWS = 32  # a run on so few rows is all price
PRICE_NS = 8_000.0  # of a run, before one on so few rows was seen; but never more than any run took
LONG_ROWS = 4096  # a run on so many rows is hardly price
LATE = 2.0  # a run counts at most so many times what was expected: it may have been interrupted
DOUBT = 5.0  # a run's price is not more than so many times the shortest
JUDGE_ROWS = 256  # fewer new rows cannot contradict the past
SIGMAS = 4.0  # of chance that a difference in selectivity must exceed...
DIFFERENCE = 0.15  # ...and its least size, relative
SPEED_UP = 1.5  # a cost this much lower is believed at once
SURPRISE = 0.2  # difference from the last selectivity that asks for new decisions, relative
CALM_RUNS = 2  # that must come before a surprise that is taken for a shift...
MOST_CALM_RUNS = 64  # ...four times as many after each that came sooner than this, up to this
LIKE_OTHERS = 0.25  # of the rows of a usual run that one must have to tell of a shift
DOUBTED_ROWS = 8.0  # weight left to figures of a module that was contradicted elsewhere


class Estimate(NamedTuple):
    """Rows out per row in, and nanoseconds per row in."""

    selectivity: float
    cost_ns: float

    @property
    def rank(self) -> float:
        """Smaller goes first."""
        return (self.selectivity - 1.0) / self.cost_ns

    def then(self, following: Estimate) -> Estimate:
        """Of this module and, on what it returns, the following."""
        return Estimate(
            self.selectivity * following.selectivity,
            self.cost_ns + self.selectivity * following.cost_ns,
        )


class Place:
    """What is known of a signature: the modules that ran there, and rows they took."""

    __slots__ = ("evidence", "is_entry", "n_hoped", "n_rows", "was_delayed")

    def __init__(self, signature: Signature) -> None:
        self.is_entry = signature.sources & (signature.sources - 1) == 0 and signature.done == 0
        self.evidence: list[Evidence] = []
        self.n_rows = 0
        self.n_hoped = 0  # rows sent on a hope, see AutoPolicy._hope
        self.was_delayed = False  # see AutoPolicy._explore


class Evidence:
    """A module at a signature. The n_* sums are of runs not yet absorbed.

    `earlier` are those before a surprise: (runs, rows in, rows out, nanoseconds), or None.
    """

    __slots__ = (
        "at_rows",
        "cost_ns",
        "earlier",
        "elapsed_ns",
        "expected",
        "is_stale",
        "is_touched",
        "module",
        "n_calm",
        "n_calm_needed",
        "n_in",
        "n_out",
        "n_runs",
        "past",
        "place",
        "was_hoped",
    )

    def __init__(self, module: Module, place: Place) -> None:
        self.module = module
        self.place = place
        self.past = Tally()
        self.at_rows = 0  # driver rows at the last absorption
        self.is_stale = True
        self.was_hoped = False  # since it went stale, see AutoPolicy._hope
        self.expected = -1.0  # rows out per row in, as last absorbed
        self.cost_ns = 0.0  # of the past, per row
        self.n_calm = 0  # runs since the last surprise
        self.n_calm_needed = CALM_RUNS
        self._reset()

    @property
    def own(self) -> Estimate:
        """What the module did at this signature when it last ran there; only if it did."""
        return Estimate(self.past.n_out / self.past.n_in, self.cost_ns)

    def _reset(self) -> None:
        self.is_touched = False
        self.n_runs = self.n_in = self.n_out = self.elapsed_ns = 0
        self.earlier: tuple[int, int, int, int] | None = None

    def _be_surprised(self, n_in: int, n_out: int, elapsed_ns: int, n_runs: int) -> None:
        """The last runs, which are summed up already, are unlike those before them."""
        is_shift = self.n_calm >= self.n_calm_needed
        if self.n_calm >= MOST_CALM_RUNS:
            self.n_calm_needed = CALM_RUNS
        else:
            self.n_calm_needed = min(MOST_CALM_RUNS, 4 * self.n_calm_needed)
        self.n_calm = 0
        n_before = self.n_in - n_in
        if not is_shift or self.earlier is not None or not n_before:
            return
        n_runs_before = self.n_runs - n_runs
        if n_in * n_runs_before < LIKE_OTHERS * n_before * n_runs:
            return
        n_out_before, ns_before = self.n_out - n_out, self.elapsed_ns - elapsed_ns
        self.earlier = (n_runs_before, n_before, n_out_before, ns_before)
        self.n_runs, self.n_in, self.n_out, self.elapsed_ns = n_runs, n_in, n_out, elapsed_ns


class Module:
    """A module over all signatures."""

    __slots__ = ("at_rows", "cost_ns", "evidence", "total")

    def __init__(self) -> None:
        self.evidence: list[Evidence] = []
        self.total = Tally()
        self.at_rows = 0
        self.cost_ns = 0.0  # of the total, per row


class Ledger:
    """All evidence of one policy. See the module docstring for the order of calls."""

    def __init__(self) -> None:
        self.n_driver_rows = 0
        self.elapsed_ns = 0
        self.run_price_ns = PRICE_NS  # what a run costs whatever its rows
        self._is_price_known = False  # by a run on a few rows; else it is a guess
        self._usual_ns: float | None = None  # per row, of recent long runs
        self.is_surprised = False
        self.n_shifts = 0  # how often what a module keeps of its rows has changed
        self.n_unabsorbed = 0  # rows observed since the last absorption, and the time they took
        self.ns_unabsorbed = 0
        self.version = 0  # changes when estimates do
        self._at: dict[int, tuple[Fork, list[Evidence]]] = {}  # by the number of a fork
        self._evidence: dict[tuple[Signature, int], Evidence] = {}
        self._places: dict[Signature, Place] = {}
        self._modules: dict[int, Module] = {}
        self._touched: list[Evidence] = []

    def observe(
        self, fork: Fork, choice: int, n_in: int, n_out: int, elapsed_ns: int, n_runs: int = 1
    ) -> None:
        """Sum up one run, or several like it, or with no rows in, what a run returned later."""
        known = self._at.get(fork.fork_id)
        evidence = (known[1] if known is not None and known[0] is fork else self.at(fork))[choice]
        if not evidence.is_touched:
            evidence.is_touched = True
            self._touched.append(evidence)
        evidence.n_out += n_out
        if not n_in:
            evidence.elapsed_ns += elapsed_ns
            return
        known_ns = evidence.cost_ns or evidence.module.cost_ns
        if known_ns:
            most_ns = LATE * (known_ns * n_in + DOUBT * n_runs * self.run_price_ns)
            if elapsed_ns > most_ns:
                elapsed_ns = int(most_ns)
        evidence.elapsed_ns += elapsed_ns
        evidence.n_runs += n_runs
        evidence.n_in += n_in
        evidence.place.n_rows += n_in
        self.n_unabsorbed += n_in
        self.ns_unabsorbed += elapsed_ns
        if n_in >= JUDGE_ROWS:
            if n_in >= LONG_ROWS * n_runs:
                cost_ns = elapsed_ns / n_in
                usual = self._usual_ns
                self._usual_ns = cost_ns if usual is None else 0.9 * usual + 0.1 * cost_ns
            difference = n_out - evidence.expected * n_in
            if evidence.expected >= 0.0 and abs(difference) > SURPRISE * max(n_out, n_in - n_out):
                self.is_surprised = True
                evidence._be_surprised(n_in, n_out, elapsed_ns, n_runs)
            else:
                evidence.n_calm += n_runs
        if elapsed_ns < self.run_price_ns * n_runs or not self._is_price_known:
            self._learn_price(n_in / n_runs, elapsed_ns / n_runs)

    def _learn_price(self, n_in: float, elapsed_ns: float) -> None:
        """From the shortest run so far, or if the price is a guess, from any."""
        if n_in <= TINY_ROWS and not self._is_price_known:
            self._is_price_known = True
            self.run_price_ns = elapsed_ns
        elif elapsed_ns < self.run_price_ns and (n_in <= TINY_ROWS or not self._is_price_known):
            self.run_price_ns = elapsed_ns

    def at(self, fork: Fork) -> list[Evidence]:
        """Of all candidates of a fork."""
        known = self._at.get(fork.fork_id)
        if known is None or known[0] is not fork:
            signature = fork.signature
            found = [self.evidence(signature, c.module) for c in fork.candidates]
            known = self._at[fork.fork_id] = (fork, found)
        return known[1]

    def evidence(self, signature: Signature, module: int) -> Evidence:
        """Of a module at a signature, empty at first."""
        key = (signature, module)
        evidence = self._evidence.get(key)
        if evidence is None:
            if module not in self._modules:
                self._modules[module] = Module()
            owner, place = self._modules[module], self.place(signature)
            evidence = self._evidence[key] = Evidence(owner, place)
            owner.evidence.append(evidence)
            place.evidence.append(evidence)
        return evidence

    def place(self, signature: Signature) -> Place:
        """Of a signature, empty at first."""
        place = self._places.get(signature)
        if place is None:
            place = self._places[signature] = Place(signature)
        return place

    def absorb(self) -> list[tuple[Evidence, int, int, int]]:
        """Count in what was observed; returns it: evidence, rows in, rows out, nanoseconds."""
        touched, self._touched = self._touched, []
        self.n_unabsorbed = self.ns_unabsorbed = 0
        if touched:
            self.version += 1
        runs = []
        for evidence in touched:
            if evidence.place.is_entry:
                self.n_driver_rows += evidence.n_in
                if evidence.earlier is not None:
                    self.n_driver_rows += evidence.earlier[1]
        for evidence in touched:
            earlier = evidence.earlier or (0, 0, 0, 0)
            last = (evidence.n_runs, evidence.n_in, evidence.n_out, evidence.elapsed_ns)
            if evidence.earlier is not None:
                self._set_sums(evidence, earlier)
                self._count_in(evidence)
                self._set_sums(evidence, last)
            self._count_in(evidence)
            _, n_in, n_out, elapsed_ns = map(add, earlier, last)
            runs.append((evidence, n_in, n_out, elapsed_ns))
            evidence._reset()
        return runs

    @staticmethod
    def _set_sums(evidence: Evidence, sums: tuple[int, int, int, int]) -> None:
        evidence.n_runs, evidence.n_in, evidence.n_out, evidence.elapsed_ns = sums

    def _count_in(self, evidence: Evidence) -> None:
        self.elapsed_ns += evidence.elapsed_ns
        if evidence.n_in:
            self._absorb(evidence)
        else:
            for tally in (evidence.past, evidence.module.total):
                tally.n_out += evidence.n_out
                tally.elapsed_ns += evidence.elapsed_ns
            self._price(evidence)

    def fade_factor(self, at_rows: int) -> float:
        """Weight left to what was counted in when there were `at_rows` driver rows."""
        return math.exp(FADE_RATE * (at_rows - self.n_driver_rows))

    def estimate(self, evidence: Evidence) -> Estimate | None:
        """What the module would do at the signature; None if it never ran anywhere."""
        shared = evidence.module.total
        if not shared.n_in:
            return None
        past = evidence.past
        cost_ns = evidence.module.cost_ns
        if not past.n_in:
            return Estimate(shared.n_out / shared.n_in, cost_ns)
        weight = past.n_in * self.fade_factor(evidence.at_rows)
        trust = weight / (weight + SHARED_ROWS)
        doubt = 1.0 - trust
        return Estimate(
            trust * past.n_out / past.n_in + doubt * shared.n_out / shared.n_in,
            trust * evidence.cost_ns + doubt * cost_ns,
        )

    def _cost_ns(self, tally: Tally) -> float:
        price_ns = self.run_price_ns * tally.n_runs
        most = max(tally.elapsed_ns - price_ns, 0.2 * tally.elapsed_ns) / tally.n_in
        least = (tally.elapsed_ns - DOUBT * price_ns) / tally.n_in
        usual = self._usual_ns
        return max(most if usual is None else min(most, max(least, usual)), MIN_COST_NS)

    def _absorb(self, evidence: Evidence) -> None:
        n_in, module, past = evidence.n_in, evidence.module, evidence.past
        past.fade(self.fade_factor(evidence.at_rows))
        module.total.fade(self.fade_factor(module.at_rows))
        heaviest = PAST_WEIGHT * max(n_in, JUDGE_ROWS)
        if past.n_in > heaviest:
            past.fade(heaviest / past.n_in)
        if past.n_in and self._is_contradicted(evidence):
            self.n_shifts += evidence.place.is_entry
            past.clear()
            module.total.fade(0.05)
            for other in module.evidence:
                if other.past.n_in > DOUBTED_ROWS:
                    other.past.fade(DOUBTED_ROWS / other.past.n_in)
                other.is_stale, other.was_hoped = True, False
            for other in evidence.place.evidence:
                other.is_stale, other.was_hoped = True, False
        evidence.is_stale = False
        evidence.expected = evidence.n_out / n_in
        for tally in (past, module.total):
            tally.n_runs += evidence.n_runs
            tally.n_in += n_in
            tally.n_out += evidence.n_out
            tally.elapsed_ns += evidence.elapsed_ns
        evidence.at_rows = module.at_rows = self.n_driver_rows
        self._price(evidence)

    def _price(self, evidence: Evidence) -> None:
        """Keep the costs per row where estimates find them."""
        module = evidence.module
        if evidence.past.n_in:
            evidence.cost_ns = self._cost_ns(evidence.past)
        if module.total.n_in:
            module.cost_ns = self._cost_ns(module.total)

    def _is_contradicted(self, evidence: Evidence) -> bool:
        n_in, past = evidence.n_in, evidence.past
        present = Tally()
        present.n_runs, present.n_in, present.elapsed_ns = (
            float(evidence.n_runs),
            float(n_in),
            float(evidence.elapsed_ns),
        )
        if self._cost_ns(present) * SPEED_UP < self._cost_ns(past):
            return True
        if n_in < JUDGE_ROWS or past.n_in < JUDGE_ROWS:
            return False
        before, after = past.n_out / past.n_in, evidence.n_out / n_in
        higher = max(before, after)
        chance = SIGMAS * math.sqrt(higher * (1.0 / n_in + 1.0 / past.n_in))
        return abs(after - before) > max(chance, DIFFERENCE * higher)
