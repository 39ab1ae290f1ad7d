"""A left-deep plan of symmetric hash joins under memory pressure, in virtual time (ER, section 3).

The plan joins sources S0, S1, ... on one key: operator 0 joins S0 and S1, operator i the output of
operator i - 1 (side A) and source i + 1 (side B). Memory holds a given number of tuples; what exceeds
it is flushed as a `FlushPolicy` says. Who merges flushed data, and when, is a `Disk phase`:

    "none"     nobody before cleanup (state-spill, and AdaptiveGlobalFlush alone)
    "manager"  the state manager
    "local"    each operator for itself, while both its inputs are silent (HMJ, RPJ)

Operators that are in memory join what has come for them (ER-2): while one of them is in its disk phase,
the others get their turn after every group that was merged.

An operator both of whose inputs have ended begins its *cleanup*: it flushes what it holds, merges all
its groups, and is itself an ended input of the operator above (ER-32). So cleanup goes from base to
root. What arrives has precedence, group by group. State-spill knows only one cleanup, of the whole
plan, when all sources have ended (`Settings.clean_up`).

Time is virtual: arrivals have moments, tuples, results and disk accesses have costs, and nothing else
takes time. So figures do not depend on the machine. The disk is simulated, too: what is "on disk" is
only marked, and its cost counted.

Four improvements beyond the paper can be switched on:

* `skip_hopeless`: a group whose keys some ended source never had cannot give a result. It is neither
  merged nor joined any more. (Filters over keys, at the size of groups.)
* `cascade`: disk work goes group by group through all operators, from base to root, instead of one
  operator at a time. The best group is the one with most missing results for the time it takes to read;
  how many are missing follows from how many tuples of it each source has sent and how many results
  came of it. Cleanup goes the same way, so that results come from its beginning to its end.
* `exact_bytes`: arrivals are predicted by bytes instead of by tuples (open point 9 of the paper).
* `rebuild`: with disk work by group, flushed intermediate results are dropped instead of written, and
  made again from the group's tuples when these are read anyway. Which of them have met is still known:
  when an intermediate result came follows from its parts, when it left from the flushes of its group.
  So nothing of `join_operator`'s reasoning changes, only what is paid. (SteMs do the same: they keep
  base rows.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from eddies.core.spill.flush_policies import FlushPolicy, make_flush_policy
from eddies.core.spill.join_operator import JoinOperator, JoinSide, Tuples
from eddies.core.spill.plan_run import Arrivals, Outcome, Settings
from eddies.core.spill.plan_statistics import PlanStatistics
from eddies.core.spill.state_manager import (
    Direction,
    DiskSpeed,
    OperatorView,
    StateManager,
)

__all__ = ["Pipeline"]

_CHUNK = 256  # tuples of one source that are joined at once
_LEAST_WORTH = 0.02  # missing results for each tuple read, below which a group is left to grow


class Pipeline:
    """One run of a plan. `run` once."""

    def __init__(self, sources: Sequence[Arrivals], n_keys: int, settings: Settings) -> None:
        self._sources = sources
        self._settings = settings
        self._costs = settings.costs
        self._policy: FlushPolicy = make_flush_policy(settings.flush)
        n_groups = settings.n_groups
        self.operators = [
            JoinOperator(i, n_keys, n_groups, (i + 1, 1)) for i in range(len(sources) - 1)
        ]
        self._next = [0] * len(sources)
        self._last_came = [[0.0, 0.0] for _ in self.operators]
        self.now = 0.0
        self._folded_at = 0.0
        self._statistics = PlanStatistics(self.operators, settings)
        self._merging = -1  # the operator whose disk group is being merged
        self._merged_at = -1.0  # when an operator last merged for itself
        self._cleanup = self._clean_up()
        self._disk = DiskSpeed(1.0 / self._costs.read_s)
        self._manager = StateManager(self._disk, settings.buffer_share * settings.memory_tuples)
        self._is_hopeless = np.zeros(n_groups, dtype=np.bool_)
        self._is_news = True  # since the state manager last looked
        self._n_sent = np.zeros((len(sources), n_groups))
        self._n_given = np.zeros(n_groups)
        self._expected_at_merge = np.zeros(n_groups)
        self.outcome = Outcome()

    # The run

    def run(self) -> Outcome:
        """Everything, to the last result."""
        while self._go_on():
            if self.now - self._folded_at >= self._settings.interval_s:
                self._fold()
                if self._settings.disk_phase == "manager":
                    self._follow_manager(idle=False)
        self.outcome.cleanup_s = self.now
        if self._settings.cascade:
            self._clean_up_by_group()
        else:
            for _ in self._cleanup:
                pass
        self.outcome.end_s = self.now
        return self.outcome

    def _go_on(self) -> bool:
        """Do the next thing; False when all sources have ended and nothing waits."""
        source, due = self._earliest()
        if source < 0:
            return False
        if self._settings.disk_phase == "local" and due > self._merged_at and self._merge_locally():
            self._merged_at = self.now
        elif due <= self.now:
            self._deliver(source)
        elif not self._work_in_silence():
            pause = [due, self._folded_at + self._settings.interval_s]
            if self._settings.disk_phase == "local":
                pause.append(self.now + self._settings.silence_s)
            self.now = max(self.now + 1e-9, min(moment for moment in pause if moment > self.now))
        return True

    def _work_in_silence(self) -> bool:
        """Nothing has arrived: merge what the disk phase says, or go on with a cleanup."""
        if self._settings.disk_phase == "manager" and self._follow_manager(idle=True):
            return True
        return not self._settings.cascade and next(self._cleanup)

    def _earliest(self) -> tuple[int, float]:
        moments = [
            (source.moments[at], number)
            for number, (source, at) in enumerate(zip(self._sources, self._next, strict=True))
            if at < len(source.moments)
        ]
        if not moments:
            return -1, 0.0
        due, number = min(moments)
        return number, float(due)

    def _deliver(self, number: int) -> None:
        """Join the tuples of a source that have come, a chunk at most."""
        source, first = self._sources[number], self._next[number]
        stop = int(np.searchsorted(source.moments, self.now, side="right"))
        last = min(stop, first + _CHUNK)
        self._next[number] = last
        keys = source.keys[first:last]
        ids = np.arange(first, last, dtype=np.int32)
        if last == len(source.moments):
            self._note_end(number)
        if self._settings.skip_hopeless and self._is_hopeless.any():
            hopeful = ~self._is_hopeless[keys % np.int32(self._settings.n_groups)]
            keys, ids = keys[hopeful], ids[hopeful]
        groups = keys % np.int32(self._settings.n_groups)
        self._n_sent[number] += np.bincount(groups, minlength=self._settings.n_groups)
        operator, side = (0, 0) if number == 0 else (number - 1, 1)
        self._take(operator, side, Tuples(keys, ids.reshape(-1, 1)))
        self._keep_within_memory()

    def _take(self, number: int, side: int, tuples: Tuples) -> None:
        """Send tuples into an operator, and what comes out into those above."""
        while len(tuples):
            self._last_came[number][side] = self.now
            self.now += len(tuples) * self._costs.tuple_s
            found = self.operators[number].take(side, tuples)
            self.now += len(found) * self._costs.result_s
            if number == len(self.operators) - 1:
                self._give(found)
                return
            number, side, tuples = number + 1, 0, found

    def _give(self, results: Tuples) -> None:
        """Query results: count them, and credit every group they lived in."""
        if not len(results):
            return
        outcome = self.outcome
        outcome.results.append(results.ids)
        outcome.counts.append((outcome.counts[-1] if outcome.counts else 0) + len(results))
        outcome.moments.append(self.now)
        groups = self.operators[0].groups_of(results.keys)
        counts = np.bincount(groups, minlength=self._settings.n_groups)
        self._n_given += counts
        for operator in self.operators:
            operator.globally += counts
        for operator in self.operators[self._merging + 1 :]:
            operator.given_in_memory += len(results)

    def _fold(self) -> None:
        """An interval is over: observations become statistics."""
        self._statistics.fold()
        self._folded_at = self.now
        self._is_news = True

    # Memory

    def _held(self, operator: JoinOperator) -> float:
        return float(sum(side.size.sum() * side.width for side in operator.sides))

    def _keep_within_memory(self) -> None:
        limit = self._settings.memory_tuples
        size = self._settings.flush_share * limit
        if self._policy.is_local:
            share = limit / len(self.operators)
            for number, operator in enumerate(self.operators):
                if self._held(operator) > share:
                    self._flush([number], max(size, self._held(operator) - share))
            return
        held = sum(self._held(operator) for operator in self.operators)
        if held > limit:
            self._flush(range(len(self.operators)), max(size, held - limit))

    def _flush(self, numbers: Sequence[int], n_bytes: float) -> None:
        """One flush: as many victims as the policy thinks right."""
        self.outcome.n_flushes += 1
        self._is_news = True
        if self._settings.skip_hopeless:
            n_bytes -= self._drop_hopeless()
            if n_bytes <= 0:
                return
        n_written = 0
        for victim in self._policy.choose(self._statistics.table(numbers), n_bytes):
            operator = self.operators[victim.operator]
            n_written += sum(
                side.size[victim.group]
                for letter, side in zip("AB", operator.sides, strict=True)
                if letter in victim.sides and side in self._written_sides(operator)
            )
            operator.flush(victim.group, victim.sides)
        if n_written:
            self.now += self._costs.seek_s + n_written * self._costs.write_s

    def _written_sides(self, operator: JoinOperator) -> list[JoinSide]:
        """The sides of an operator whose flushed tuples are on disk and not made again."""
        return operator.sides[1:] if self._settings.rebuild and operator.number else operator.sides

    def _note_end(self, number: int) -> None:
        """A source has ended: groups of which it had no tuple are hopeless."""
        n_groups = self._settings.n_groups
        present = np.bincount(self._sources[number].keys % n_groups, minlength=n_groups) > 0
        self._is_hopeless |= ~present

    def _drop_hopeless(self) -> float:
        """Forget what is in memory of hopeless groups; how much that was."""
        dropped = 0.0
        for operator in self.operators:
            for group in np.flatnonzero(self._is_hopeless):
                for letter, side in zip("AB", operator.sides, strict=True):
                    dropped += float(side.size[group] * side.width)
                    if side.size[group]:
                        operator.flush(int(group), letter)
        return dropped

    # Disk

    def _merge(self, number: int, group: int) -> None:
        """Merge one disk group and send what it finds up."""
        operator = self.operators[number]
        n_tuples = float(sum(side.disk_size[group] for side in operator.sides))
        n_read = float(sum(side.disk_size[group] for side in self._written_sides(operator)))
        n_seeks = max(int(side.n_runs[group]) for side in self._written_sides(operator))
        seconds = n_seeks * self._costs.seek_s + n_read * self._costs.read_s
        self.now += (n_tuples - n_read) * (self._costs.tuple_s + self._costs.result_s)
        self.now += seconds
        self._disk.saw(n_read, seconds)
        self.outcome.n_merges += 1
        found = operator.merge(group)
        self.now += len(found) * self._costs.result_s
        self._merging = number
        if number == len(self.operators) - 1:
            self._give(found)
        else:
            for start in range(0, len(found), _CHUNK):
                piece = slice(start, start + _CHUNK)
                self._take(number + 1, 0, Tuples(found.keys[piece], found.ids[piece]))
                self._keep_within_memory()
        self._merging = -1

    def _view(self, number: int) -> OperatorView:
        operator = self.operators[number]
        share = self._statistics.contribution(number)
        sizes = operator.sides[0].disk_size + operator.sides[1].disk_size
        results = operator.disk_results * share
        if self._settings.skip_hopeless:
            results = np.where(self._is_hopeless, 0.0, results)
        _, in_memory = self._statistics.in_memory(number)
        rate = sum(self._statistics.input_rate(below) for below in range(number + 1))
        return OperatorView(
            memory_throughput=in_memory,
            disk_throughput=(results / np.maximum(sizes, 1)).tolist(),
            disk_sizes=sizes.tolist(),
            input_rate=rate,
            below=frozenset(range(number)),
        )

    def direct(self) -> Direction:
        """What the state manager thinks right now."""
        views = [self._view(number) for number in range(len(self.operators))]
        return self._manager.direct(views, range(len(self.operators) - 1, -1, -1))

    def _follow_manager(self, *, idle: bool) -> bool:
        """Merge what the state manager chooses, if anything; asked again only when there is news."""
        if not self._is_news:
            return False
        if self._settings.cascade:
            return idle and self._merge_best_group()
        direction = self.direct()
        if direction.operator < 0:
            self._is_news = False
            return False
        self.outcome.directions.append(direction)
        self.outcome.n_early_merges += 1
        self._merge(direction.operator, direction.group)
        return True

    def _merge_locally(self) -> bool:
        """An operator with two silent inputs merges one group (HMJ, RPJ)."""
        for number, operator in enumerate(self.operators):
            if not self._is_silent(number) or not operator.disk_results.any():
                continue
            sizes = operator.sides[0].disk_size + operator.sides[1].disk_size
            if self._settings.flush == "rpj":
                worth = operator.disk_results / np.maximum(sizes, 1)
                group = int(worth.argmax())
                in_memory, _ = self._statistics.in_memory(number)
                if worth[group] * self._disk.tuples_per_second <= in_memory:
                    continue
            else:
                group = int(np.where(operator.disk_results > 0, sizes, -1).argmax())
            self.outcome.n_early_merges += 1
            self._merge(number, group)
            return True
        return False

    def _is_silent(self, number: int) -> bool:
        """Whether nothing waits for an operator and nothing came for a while."""
        sources = [number + 1] if number else [0, 1]
        for source in sources:
            at = self._next[source]
            moments = self._sources[source].moments
            if at < len(moments) and moments[at] <= self.now:
                return False
        quiet_since = max(self._last_came[number])
        return self.now - quiet_since >= self._settings.silence_s

    # Cleanup

    def _clean_up(self) -> Iterator[bool]:
        """Operator by operator, from base to root (ER-32): True after each group that was merged, False
        while the next operator's inputs have not ended.
        """
        for number, operator in enumerate(self.operators):
            while not self._has_ended(number):
                yield False
            self._flush_for_good(operator)
            for group in range(self._settings.n_groups):
                if operator.has_unmerged(group) and self._is_worth_it(group):
                    self._merge(number, group)
                    yield True

    def _has_ended(self, number: int) -> bool:
        """Whether an operator may clean up, when all below it have: its own sources have ended."""
        waits_for_all = self._settings.clean_up == "plan"
        last = len(self._sources) if waits_for_all else number + 2
        return all(
            at == len(source.moments)
            for source, at in zip(self._sources[:last], self._next[:last], strict=True)
        )

    def _flush_for_good(self, operator: JoinOperator) -> None:
        n = sum(operator.flush(group, "AB") for group in range(self._settings.n_groups))
        if n:
            self.now += self._costs.seek_s + n * self._costs.write_s

    def _is_worth_it(self, group: int) -> bool:
        return not (self._settings.skip_hopeless and self._is_hopeless[group])

    # Group by group

    def _merge_best_group(self) -> bool:
        """Take the group with most missing results for the time it takes through all operators."""
        missing = self._missing_results()
        written = [self._written_sides(operator) for operator in self.operators]
        n_read = sum(side.disk_size for sides in written for side in sides)
        n_seeks = sum(np.maximum.reduce([side.n_runs for side in sides]) for sides in written)
        worth = missing / np.maximum(n_read + n_seeks * self._costs.seek_s / self._costs.read_s, 1)
        group = int(worth.argmax())
        if missing[group] < 1.0 or worth[group] < _LEAST_WORTH:
            self._is_news = False
            return False
        self.outcome.n_early_merges += 1
        self._merge_through(group)
        return True

    def _missing_results(self) -> npt.NDArray[np.float64]:
        """Results that each group should have given by now, less those it gave.

        A group that was merged has given all it had then, whatever was expected.
        """
        done = np.maximum(self._n_given, self._expected_at_merge)
        return np.where(self._is_hopeless, 0.0, np.maximum(0.0, self._expected_results() - done))

    def _expected_results(self) -> npt.NDArray[np.float64]:
        unique = np.maximum(self.operators[0].unique, 1.0)
        expected: npt.NDArray[np.float64] = self._n_sent.prod(axis=0)
        expected /= unique ** (len(self._sources) - 1)
        return expected

    def _merge_through(self, group: int) -> None:
        """Merge one group at every operator, base first.

        What is in memory of the group joins from there; only what was flushed is read.
        """
        self._expected_at_merge[group] = self._expected_results()[group]
        for number, operator in enumerate(self.operators):
            written = self._written_sides(operator)
            held = float(sum(side.size[group] for side in written))
            runs = [side.n_runs[group] for side in written]
            operator.flush(group, "AB")
            for side, n_runs in zip(written, runs, strict=True):
                side.n_runs[group] = n_runs  # what was in memory need not be looked for on disk
            self.now += held * self._costs.write_s
            if operator.has_unmerged(group):
                self.now -= held * self._costs.read_s
                self._merge(number, group)

    def _clean_up_by_group(self) -> None:
        """The best groups first: results from the beginning to the end of cleanup."""
        for group in np.argsort(-self._missing_results(), kind="stable"):
            if self._is_worth_it(int(group)):
                self._merge_through(int(group))
