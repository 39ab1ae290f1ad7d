"""The look-ups of an eddy: what is covered, what must be asked for, and what came back.

Between the SteMs, which want to know whether a probe has found everything, and the dispatcher, which
sends keys to indexes. Legal in any order; nothing is sent before `pump`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eddies.core.access.binding import AccessPlan, Option, plan_access, without_scans
from eddies.core.access.choice import AccessPolicy
from eddies.core.access.constants import constant_column
from eddies.core.access.dispatch import Answer, Dispatcher, KeyQueue
from eddies.core.access.eot import Eots
from eddies.core.access.key_table import UNKNOWN
from eddies.core.access.method import Access
from eddies.core.access.requests import LookupExecutor
from eddies.core.access.scan_pace import ScanPace
from eddies.core.batch import Ids
from eddies.core.clock import Clock
from eddies.core.events import EventSink
from eddies.core.exactly_once import NO_LIMIT
from eddies.core.graph import Graph
from eddies.core.modules.stem import SteM
from eddies.core.state.columns import Column, column_of
from eddies.core.state.keys import KeySide, is_exact, key_words, verify_keys
from eddies.core.state.rows import Block, RowStore
from eddies.core.state.scratch import Scratch
from eddies.errors import SourceError

__all__ = ["Answers", "Lookups"]

QueueKeys = tuple[tuple[int, int], Ids]


@dataclass(frozen=True, slots=True)
class Answers:
    """All rows of the source that have one of the keys `ids` of `queue`, in one or more batches."""

    queue: KeyQueue
    ids: Ids
    batches: tuple[pa.RecordBatch, ...]


class Lookups:
    """See the module docstring. `access` and `pace` are by relation number."""

    def __init__(
        self,
        graph: Graph,
        access: Sequence[Access],
        stems: Sequence[SteM],
        pace: Sequence[ScanPace],
        executor: LookupExecutor,
        policy: AccessPolicy,
        clock: Clock,
        events: EventSink | None,
    ) -> None:
        self._graph = graph
        self._access = access
        self._stems = stems
        self._pace = pace
        self._scratch = Scratch(1024)
        self._policy = policy
        self.plan: AccessPlan = plan_access(graph, access)
        self.has_scan = [bool(methods.scans) for methods in access]  # one that has not failed
        self.is_complete = [False] * len(access)
        self.queues: dict[tuple[int, int], KeyQueue] = {}
        for number, methods in enumerate(access):
            self._make_queues(number, methods)
        queues = list(self.queues.values())
        self.dispatcher = Dispatcher(queues, executor, policy, clock, events)
        self._ask_at_start()

    def _make_queues(self, number: int, methods: Access) -> None:
        relation = self._graph.relations[number]
        for bind_set, columns in enumerate(methods.bind_sets):
            if any(column not in relation.read.names for column in columns):
                continue  # the query does not read them, so nobody can bind them
            indexes = [i for i in methods.indexes if set(i.bind) == set(columns)]
            own = pa.schema([relation.read.field(c) for c in columns])
            eots = Eots(relation.name, pa.schema([_widened(field) for field in own]))
            queue = KeyQueue(number, relation.name, bind_set, eots, indexes, own)
            self.queues[number, bind_set] = queue

    def _queue(self, option: Option) -> KeyQueue:
        return self.queues[self._graph.roles[option.target].relation, option.bind_set]

    # Who probes

    def uncovered(self, target: int, options: Sequence[Option], sides: Sequence[KeySide]) -> Ids:
        """Positions of rows for which the SteM of `target` may lack matches (SteM-19, SteM-20)."""
        if self.is_complete[self._graph.roles[target].relation]:
            return np.empty(0, dtype=np.int32)
        covered = None
        for option, side in zip(options, sides, strict=True):
            eots = self._queue(option).eots
            mask = eots.covered(eots.find(side))
            if self._is_unique(option):
                mask |= self._is_stored(option, side)
            covered = mask if covered is None else covered | mask
        assert covered is not None
        return np.flatnonzero(~covered).astype(np.int32)

    def _is_unique(self, option: Option) -> bool:
        """Whether no two rows of the source have the same values in the option's bind columns."""
        key = self._access[self._graph.roles[option.target].relation].key
        columns = {bind.column for bind in option.binds}
        stored = self._graph.relation_of(option.target).stored.names
        return bool(key) and set(key) <= columns and columns <= set(stored)

    def _is_stored(self, option: Option, side: KeySide) -> npt.NDArray[np.bool_]:
        """For a unique key: which rows have their one match in the SteM, by whatever way it came."""
        stem = self._stems[self._graph.roles[option.target].relation]
        names = sorted(bind.column for bind in option.binds)
        found = np.zeros(key_words(side)[0].shape[0], dtype=np.bool_)
        if not stem.store.n_rows:
            return found
        by_name = dict(zip((bind.column for bind in option.binds), side, strict=True))
        index = stem.hash_index(tuple(names), None)
        if set(index.columns) != set(names):
            return found
        ordered = [by_name[name] for name in index.columns]
        words, valid = key_words(ordered)
        index.catch_up(self._scratch)
        n_found, pending = index.probe(words, NO_LIMIT, self._scratch)
        stored = [stem.store.column(name) for name in index.columns]
        while True:
            positions, rows = self._scratch.positions, self._scratch.rows
            if not is_exact(stored):
                n_found = verify_keys(positions, rows, n_found, ordered, stored)
            found[positions[:n_found]] = True
            if pending is None:
                break
            n_found, pending = index.resume(pending, self._scratch)
        if valid is not None:
            found &= valid != 0
        return found

    def ask(
        self,
        target: int,
        options: Sequence[Option],
        sides: Sequence[KeySide],
        positions: Ids,
        *,
        preferred: bool = False,
    ) -> float:
        """Ask for the keys at `positions` that nobody has asked for, by one of the options.

        While a scan of the source runs, asking is a matter of speed only, so the policy decides,
        unless the user prefers these rows (SteM-54). Preferred keys are asked for before others.

        Returns how long the indexes will be busy with the keys that are new, by what is known.
        """
        busy_ns = 0.0
        if self.has_scan[self._graph.roles[target].relation] and not preferred:
            fastest_ns = min(self._queue(option).expected_ns() for option in options)
            scan_ns = self._pace[self._graph.roles[target].relation].wait_ns()
            if not self._policy.use_index(fastest_ns, scan_ns):
                return busy_ns
        unasked = positions
        for option, side in zip(options, sides, strict=True):
            unasked = unasked[self._queue(option).eots.find(side)[unasked] == UNKNOWN]
        if unasked.shape[0]:
            costs = [self._queue(option).expected_ns() for option in options]
            chosen = self._policy.pick(len(options), costs) if len(options) > 1 else 0
            queue = self._queue(options[chosen])
            n_before = queue.eots.n_keys
            self._want(options[chosen], sides[chosen], unasked, preferred=preferred)
            busy_ns = (queue.eots.n_keys - n_before) * queue.busy_ns()
        if preferred and unasked.shape[0] < positions.shape[0]:
            for option, side in zip(options, sides, strict=True):
                queue = self._queue(option)
                queue.promote(queue.eots.find(side)[positions])
        return busy_ns

    def rows_per_key(self, options: Sequence[Option]) -> float:
        """Matches of a key on average; one if nobody has asked yet."""
        states = [state for option in options for state in self._queue(option).indexes]
        n_keys = sum(state.n_keys - state.n_out for state in states)
        return sum(state.n_rows for state in states) / n_keys if n_keys > 0 else 1.0

    def ask_for(self, source: int, place: Block | RowStore, rows: Ids | None) -> None:
        """What every stored row of `source` must ask for (see `binding`, case 3)."""
        for option in self.plan.asks_for.get(source, ()):
            n_rows = place.n_rows if rows is None else rows.shape[0]
            side = _side_of(option, source, place, rows, n_rows)
            unasked = np.flatnonzero(self._queue(option).eots.find(side) == UNKNOWN)
            self._want(option, side, unasked.astype(np.int32))

    def n_missing(self, option: Option, source: int, store: RowStore, rows: Ids) -> tuple[int, int]:
        """How many of these rows of `source` are not covered, and of those, how many did not ask."""
        side = _side_of(option, source, store, rows, rows.shape[0])
        eots = self._queue(option).eots
        ids = eots.find(side)
        covered = eots.covered(ids)
        if self._is_unique(option):
            covered |= self._is_stored(option, side)
        return int((~covered).sum()), int((~covered & (ids == UNKNOWN)).sum())

    def ask_for_rows(self, option: Option, source: int, store: RowStore, rows: Ids) -> None:
        """Ask for what these rows of `source` lack."""
        side = _side_of(option, source, store, rows, rows.shape[0])
        unasked = self._queue(option).eots.find(side) == UNKNOWN
        if self._is_unique(option):
            unasked &= ~self._is_stored(option, side)
        self._want(option, side, np.flatnonzero(unasked).astype(np.int32))

    def busy_ns(self, option: Option) -> float:
        """How long a key keeps the option's indexes busy; 0 if nobody knows."""
        return self._queue(option).busy_ns()

    def _want(
        self, option: Option, side: KeySide, positions: Ids, *, preferred: bool = False
    ) -> None:
        queue = self._queue(option)
        if positions.shape[0] and not queue.is_closed:
            ids = queue.eots.want(side, positions)
            self.dispatcher.want(queue, ids, preferred=preferred)

    def promote(self, source: int, place: Block | RowStore, rows: Ids) -> None:
        """Keys of these rows of `source` that wait are asked for before others."""
        for options in self.plan.options:
            for option in options:
                if option.target != source and option.is_bound(1 << source):
                    side = _side_of(option, source, place, rows, rows.shape[0])
                    queue = self._queue(option)
                    queue.promote(queue.eots.find(side))

    # Who answers

    def answers(self) -> list[Answers]:
        """What came back, by queue and checked: every row has a key that was asked for."""
        found: dict[int, list[Answer]] = {}
        for answer in self.dispatcher.answers(self.has_scan):
            found.setdefault(id(answer.queue), []).append(answer)
        return [self._checked(answers) for answers in found.values()]

    def pump(self) -> None:
        """Send what waits, as far as limits allow."""
        self.dispatcher.pump(self.has_scan)

    def complete(self, relation: int) -> None:
        """A scan of the relation has ended, so that nothing of it need be looked up any more."""
        self.is_complete[relation] = True
        self.dispatcher.close(relation)

    def lose_scans(self, relation: int) -> list[int]:
        """No scan of the relation is left: from now on its rows are asked for, if that is possible.

        Returns the sources whose rows, stored already, must ask (`ask_for`).
        """
        self.has_scan[relation] = False
        plan = without_scans(self.plan, self._graph.relations[relation].roles)
        if plan is None:
            raise SourceError(
                f"no scan of {self._graph.relations[relation].name!r} is left, and no index of it can "
                "be asked by the rows of one other source; repair the source or add a mirror"
            )
        self.plan = plan
        self.dispatcher.ask_again(relation)
        self._ask_at_start()
        return list(plan.asks_for)

    def _ask_at_start(self) -> None:
        for option in self.plan.at_start:
            side = _constant_side(option)
            if self._queue(option).eots.find(side)[0] == UNKNOWN:
                self._want(option, side, np.zeros(1, dtype=np.int32))

    def _checked(self, answers: Sequence[Answer]) -> Answers:
        queue = answers[0].queue
        ids = np.concatenate([answer.ids for answer in answers])
        batches = []
        for rows in _together([answer.rows for answer in answers]):
            self._check(queue, answers[0].index.name, rows, ids)
            batches.append(rows)
        return Answers(queue, ids, tuple(batches))

    def _check(self, queue: KeyQueue, index: str, rows: pa.RecordBatch, asked: Ids) -> None:
        eots = queue.eots
        arrays = []
        for field in eots.table.schema:
            position = rows.schema.get_field_index(field.name)
            if position < 0:
                raise SourceError(
                    f"index {index!r} of {queue.name!r} returned rows without its bind column "
                    f"{field.name!r}; they have {', '.join(rows.schema.names)}"
                )
            arrays.append(_cast(rows.column(position), field.type))
        ids = eots.find([(column_of(array), None) for array in arrays])
        was_asked = np.zeros(eots.n_keys, dtype=np.bool_)
        was_asked[asked] = True
        strange = np.flatnonzero((ids < 0) | ~was_asked[ids])
        if strange.shape[0]:
            row = int(strange[0])
            values = ", ".join(
                f"{n} = {a[row].as_py()!r}" for n, a in zip(eots.bind, arrays, strict=True)
            )
            raise SourceError(
                f"index {index!r} of {queue.name!r} returned a row with {values}, which it was not "
                "asked for; a look-up must return rows of the keys it got only"
            )

    def key_ids(self, options: Sequence[Option], sides: Sequence[KeySide]) -> list[QueueKeys]:
        """For each option its queue and the numbers of the keys."""
        found = []
        for option, side in zip(options, sides, strict=True):
            name = (self._graph.roles[option.target].relation, option.bind_set)
            found.append((name, self.queues[name].eots.find(side)))
        return found

    @property
    def n_bytes(self) -> int:
        return sum(queue.eots.n_bytes for queue in self.queues.values())

    def release(self) -> None:
        """Drop keys and calls."""
        self.dispatcher.executor.close()
        for queue in self.queues.values():
            queue.eots.release()


def _widened(field: pa.Field) -> pa.Field:
    """Who asks may have a wider integer than the source; one that does not fit has no match."""
    return field.with_type(pa.int64()) if pa.types.is_signed_integer(field.type) else field


def _cast(array: pa.Array, type_: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return array if array.type == type_ else pc.cast(array, type_)


def _constant_side(option: Option) -> KeySide:
    side = []
    for bind in option.binds:
        assert bind.constant is not None
        side.append((constant_column(bind.constant.value, bind.type, 1), None))
    return side


def _side_of(
    option: Option, source: int, place: Block | RowStore, rows: Ids | None, n_rows: int
) -> KeySide:
    side: list[tuple[Column, Ids | None]] = []
    for bind in option.binds:
        if bind.constant is not None:
            side.append((constant_column(bind.constant.value, bind.type, n_rows), None))
        else:
            side.append((place.column(bind.column_by_source[source]), rows))
    return side


def _together(batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches with the same columns as one."""
    full = [batch for batch in batches if batch.num_rows]
    if len(full) > 1 and all(batch.schema.equals(full[0].schema) for batch in full):
        yield from pa.Table.from_batches(full).combine_chunks().to_batches()
    else:
        yield from full
