"""SteM: half a join. One relation's rows, to be built and probed (SteMs, section 2).

A SteM stores base rows of one relation, shared by all its roles and all its joins, and makes indexes
over them when a probe first needs one: a hash index per set of key columns, a sorted index per column
that a band join compares. Intermediate results are never stored.

A `Probe` is the SteM seen from one signature. It collects *all* predicates between the batch and the
new source: every key class they share becomes part of one composite key, and filters that are now
covered are checked on the matches. With no key it narrows a band by a sorted index, and with no band
it pairs the batch with the whole store in blocks (a block ripple join).

Matches are limited by the stamps of the batch's origin (`exactly_once`): row ids at or above the
limit are not seen.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddies.core.batch import Ids, RoutedBatch
from eddies.core.evaluate import evaluate, keep
from eddies.core.expr import Expr
from eddies.core.graph import Band, Graph, Relation
from eddies.core.kernels.ranges import expand_ranges
from eddies.core.lineage import Signature, bits
from eddies.core.module import Outcome
from eddies.core.modules.folding import TRIED_ROWS, Folding, Worth
from eddies.core.query import UserFunction
from eddies.core.route import Route
from eddies.core.state.columns import Column, Words
from eddies.core.state.fold import Fold
from eddies.core.state.hash_index import HashIndex, PendingChains
from eddies.core.state.keys import KeySide, is_exact, key_words, verify_keys
from eddies.core.state.rows import Block, RowStore
from eddies.core.state.scratch import Scratch
from eddies.core.state.sorted_index import Bounds, Positions, SortedIndex, Values, sort_values

__all__ = ["KeyPart", "Probe", "SteM", "has_keys", "key_parts", "key_side"]

MAX_INDEXES = 4  # hash indexes a role may have before probes make do with fewer key columns


class SteM:
    """The rows of one relation and the indexes over them.

    Legal order of calls: `build` any number of times; `hash_index` or `sorted_index`, whose
    `catch_up` must follow the builds before a probe. Building and probing do not overlap in time.
    """

    def __init__(self, relation: Relation, expected_rows: int = 0) -> None:
        self.name = f"stem:{relation.name}"
        self.store = RowStore(relation.name, relation.stored, expected_rows)
        self._hash: dict[tuple[tuple[str, ...], str | None], HashIndex] = {}
        self._folds: dict[tuple[HashIndex, tuple[str, ...]], Fold | None] = {}
        self._sorted: dict[tuple[str, str | None], SortedIndex] = {}
        self.index_type: type[HashIndex] = HashIndex
        self.lock = threading.Lock()
        self.n_built = 0  # rows, ever; the store may hold fewer
        self.generation = 0  # changes when row ids do, and then all indexes are others
        self.null_row = -1  # the row of NULLs, if there is one; it is the last
        self._schema = relation.stored

    def build(self, block: Block) -> None:
        """Store the rows of `block`."""
        self.store.append(block)
        self.n_built += block.n_rows

    def add_null_row(self) -> None:
        """Store a row of NULLs, for tuples without a match. No row may be built afterwards."""
        assert self.null_row < 0, "one row of NULLs is enough"
        nulls = {field.name: pa.nulls(1, field.type) for field in self._schema}
        self.null_row = self.store.n_rows
        self.store.append(Block.from_arrow(nulls, 1))

    @property
    def n_bytes(self) -> int:
        return self.store.n_bytes + self.n_index_bytes

    @property
    def n_index_bytes(self) -> int:
        hashed = sum(index.n_bytes for index in self._hash.values())
        hashed += sum(fold.n_bytes for fold in self._folds.values() if fold is not None)
        return hashed + sum(index.n_bytes for index in self._sorted.values())

    @property
    def n_hash_indexes(self) -> int:
        return len(self._hash)

    def release(self) -> None:
        """Drop rows and indexes; the SteM must not be used afterwards."""
        for index in self._hash.values():
            index.release()
        self._hash.clear()
        self._folds.clear()
        self._sorted.clear()
        self.store.release()

    def keep_only(self, rows: Ids) -> None:
        """Keep these rows, in this order, and no index. Row ids change: only at a safe point."""
        for index in self._hash.values():
            index.release()
        self._hash.clear()
        self._folds.clear()
        self._sorted.clear()
        self.store.keep_only(rows)
        self.generation += 1

    def hash_index(self, columns: tuple[str, ...], flag: str | None) -> HashIndex:
        """An index over all `columns`, or over some of them if there are many indexes already."""
        with self.lock:
            index = self._hash.get((columns, flag))
            if index is not None:
                return index
            others = [i for (_, f), i in self._hash.items() if f == flag]
            usable = [i for i in others if set(i.columns) < set(columns)]
            if len(others) >= MAX_INDEXES and usable:
                return max(usable, key=lambda i: len(i.columns))
            index = self.index_type(self.store, columns, flag)
            return self._hash.setdefault((columns, flag), index)

    def has_fold(self, index: HashIndex, columns: tuple[str, ...]) -> bool:
        """Whether `fold` has nothing to do: it is there, or cannot be made."""
        fold = self._folds.get((index, columns), index)
        return fold is None or (isinstance(fold, Fold) and fold.n_rows == index.n_rows)

    def fold(self, index: HashIndex, columns: tuple[str, ...], scratch: Scratch) -> Fold | None:
        """All rows of `index`, which is up to date, folded by its keys; None if that cannot be done."""
        with self.lock:
            fold = self._folds.get((index, columns))
            if (index, columns) not in self._folds or (fold and fold.n_rows != index.n_rows):
                fold = Fold.make(index, self.store, columns, scratch)
                self._folds[index, columns] = fold
            return fold

    def sorted_index(self, column: str, flag: str | None) -> SortedIndex:
        """The sorted index over `column`."""
        with self.lock:
            key = (column, flag)
            if key not in self._sorted:
                self._sorted[key] = SortedIndex(self.store, column, flag)
            return self._sorted[key]


@dataclass(frozen=True, slots=True)
class KeyPart:
    """One column of a composite key: stored as `column`, found in the batch at `source`.`probe`."""

    column: str
    source: int
    probe: str


class Probe:
    """A SteM as seen from one signature: the step that adds source `target` to a batch.

    Routes have a step for each way they might take, and most are never taken: what a probe needs is
    worked out when it is first prepared.
    """

    def __init__(
        self,
        graph: Graph,
        stem: SteM,
        target: int,
        signature: Signature,
        to: Route,
        may_fold: bool = False,
    ) -> None:
        role = graph.roles[target]
        self.name = f"stem:{role.name}"
        self._stem = stem
        self._target = target
        self._flag = role.flag
        self._to = to
        self._functions = graph.functions
        self._graph = graph
        self._signature = signature
        self._is_wired = False
        self._may_fold = may_fold  # whether `to` is the end, and the store holds all its rows
        self._folding: Folding | None = None
        self._worth = Worth()
        self._index: HashIndex | None = None
        self._sorted: SortedIndex | None = None
        self._generation = stem.generation

    def _wire(self) -> None:
        """Work out which predicates are checked, and how."""
        graph, signature, target = self._graph, self._signature, self._target
        self._parts = key_parts(graph, signature, target)
        self._filters = _covered_filters(graph, signature, target)
        self._bands = [] if self._parts else _usable_bands(graph, signature, target)

    def prepare(self, scratch: Scratch) -> int:
        stem, index = self._stem, self._index
        if index is None or self._generation != stem.generation:
            index = self._find_index()
        if index is not None:
            if not index.is_behind:
                return 0
            with stem.lock:
                return index.catch_up(scratch)
        if self._bands:
            self._sorted = self._sorted or stem.sorted_index(self._bands[0].column, self._flag)
            with stem.lock:
                return self._sorted.catch_up()
        return 0

    def _find_index(self) -> HashIndex | None:
        """The index to look into, as long as row ids stay the same; None if there is no key."""
        stem = self._stem
        if not self._is_wired:
            self._is_wired = True
            self._wire()
        if self._generation != stem.generation:
            self._index = self._sorted = None
            self._generation = stem.generation
        if self._parts:
            by_column = {part.column: part for part in self._parts}
            self._index = stem.hash_index(tuple(sorted(by_column)), self._flag)
            # The parts that the index has, in its order.
            self._asked = [by_column[column] for column in self._index.columns]
            self._folding = self._find_folding(self._index)
        return self._index

    def _find_folding(self, index: HashIndex) -> Folding | None:
        """How matches are folded; None if each must be made, to be checked or told apart."""
        if not self._may_fold or self._filters or len(self._asked) < len(self._parts):
            return None
        stored = [self._stem.store.column(name) for name in index.columns]
        if type(index) is not HashIndex or not is_exact(stored):
            return None
        return Folding.of(self._graph, self._target, index.columns)

    @property
    def most_matches(self) -> float:
        return inf if self._index is None else self._index.most_matches

    @property
    def has_heavy_keys(self) -> bool:
        return self._index is not None and self._index.heavy_keys().words.shape[0] > 0

    def matches(self, batch: RoutedBatch) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        if self._index is None:
            return np.full(batch.n_rows, np.inf), np.zeros(batch.n_rows, dtype=np.bool_)
        words, _ = key_words(key_side(batch, self._asked))
        return self._index.heavy_keys().matches(words)

    def run(self, batch: RoutedBatch, scratch: Scratch) -> Outcome:
        index = self._index
        if index is not None:
            if batch.n_rows > 2 * TRIED_ROWS and self._is_to_try(batch, index):
                few, others = batch.split(TRIED_ROWS)
                first, more = self._look_up(few, index, scratch)
                return first, self._then(more, others, index, scratch)
            return self._look_up(batch, index, scratch)
        pieces = self._ranges(batch, scratch)
        return next(pieces, None), pieces

    def _limit(self, batch: RoutedBatch) -> int:
        """The first row id of the store that `batch` must not match."""
        return batch.origin.limits[self._target]

    def _is_to_try(self, batch: RoutedBatch, index: HashIndex) -> bool:
        """Whether a few rows are to show how many matches there are: to make those of a whole batch
        may take a thousand times as long as to fold them.
        """
        if self._folding is None or self._worth.is_known or not index.n_duplicates:
            return False
        return self._limit(batch) >= index.n_rows

    def _then(
        self,
        more: Iterator[RoutedBatch] | None,
        others: RoutedBatch,
        index: HashIndex,
        scratch: Scratch,
    ) -> Iterator[RoutedBatch]:
        """The rest of what was begun, and then other rows."""
        if more is not None:
            yield from more
        first, more = self._look_up(others, index, scratch)
        if first is not None:
            yield first
        if more is not None:
            yield from more

    def _look_up(self, batch: RoutedBatch, index: HashIndex, scratch: Scratch) -> Outcome:
        words, valid = key_words(key_side(batch, self._asked))
        chosen: Ids | None = None
        if valid is not None and not valid.all():
            chosen = np.flatnonzero(valid).astype(np.int32)
            words = words[chosen]
            if chosen.shape[0] == 0:
                return None, None
        if self._folding is not None and words.shape[0]:
            folded = self._folded(batch, words, chosen, index, self._folding, scratch)
            if folded is not None:
                return folded if folded.n_rows else None, None
        found, pending = index.probe(words, self._limit(batch), scratch)
        self._worth.saw(words.shape[0], found)
        first = self._matched(batch, found, chosen, index, scratch)
        if pending is None:
            return first, None
        return first, self._resumed(batch, pending, chosen, index, scratch)

    def _folded(
        self,
        batch: RoutedBatch,
        words: Words,
        chosen: Ids | None,
        index: HashIndex,
        folding: Folding,
        scratch: Scratch,
    ) -> RoutedBatch | None:
        """The matches of a batch, folded; None if they have to be made, or may as well be."""
        if self._limit(batch) < index.n_rows:
            return None  # it may not match all rows
        stem = self._stem
        n_to_fold = 0 if stem.has_fold(index, folding.columns) else index.n_rows
        if not self._worth.of(index, words.shape[0], n_to_fold, stem.store.is_complete):
            return None
        fold = stem.fold(index, folding.columns, scratch)
        if fold is None:
            self._folding = None
            return None
        found = index.newest(words, scratch)
        positions, rows = scratch.positions[:found], scratch.rows[:found]
        if chosen is not None:
            positions[:] = chosen[positions]
        folded = folding.apply(batch, self._to, positions, rows, fold)
        if folded is None or folded.folded is None:
            self._folding = None  # it is not likely to go better next time
            return None
        self._worth.saw(words.shape[0], int(folded.folded.weights.sum()))
        return folded

    def _resumed(
        self,
        batch: RoutedBatch,
        pending: PendingChains | None,
        chosen: Ids | None,
        index: HashIndex,
        scratch: Scratch,
    ) -> Iterator[RoutedBatch]:
        while pending is not None:
            found, pending = index.resume(pending, scratch)
            self._worth.saw(0, found)
            matched = self._matched(batch, found, chosen, index, scratch)
            if matched is not None:
                yield matched

    def _matched(
        self,
        batch: RoutedBatch,
        found: int,
        chosen: Ids | None,
        index: HashIndex,
        scratch: Scratch,
    ) -> RoutedBatch | None:
        """Make the batch of the first `found` matches in the scratch, all predicates checked."""
        positions, rows = scratch.positions, scratch.rows
        if chosen is not None:
            positions[:found] = chosen[positions[:found]]
        partial = len(self._asked) < len(self._parts)
        if partial or not is_exact([self._stem.store.column(name) for name in index.columns]):
            check = self._parts if partial else self._asked
            stored = [self._stem.store.column(part.column) for part in check]
            if partial:
                found = _drop_nulls(batch, check, stored, positions, rows, found)
            found = verify_keys(positions, rows, found, key_side(batch, check), stored)
        return self._checked(batch, positions[:found], rows[:found])

    def _checked(self, batch: RoutedBatch, positions: Ids, rows: Ids) -> RoutedBatch | None:
        if positions.shape[0] == 0:
            return None
        joined = batch.joined(self._to, self._target, positions, rows)
        for predicate in self._filters:
            kept = keep(predicate, joined.column, joined.n_rows, self._functions)
            if kept is not None:
                joined = joined.kept(self._to, kept)
                if joined.n_rows == 0:
                    return None
        return joined

    def _ranges(self, batch: RoutedBatch, scratch: Scratch) -> Iterator[RoutedBatch]:
        """Block or band join: enumerate ranges in pieces, keeping what passes the filters."""
        limit = min(self._limit(batch), self._stem.store.n_rows)
        n = batch.n_rows
        capacity = max(n, scratch.capacity)
        positions = np.empty(capacity, dtype=np.int32)
        rows = np.empty(capacity, dtype=np.int32)
        for starts, stops, sequence in self._runs(batch, limit):
            cursor = np.zeros(2, dtype=np.int64)
            while cursor[0] < starts.shape[0]:
                found = expand_ranges(starts, stops, sequence, limit, cursor, positions, rows)
                matched = self._checked(batch, positions[:found], rows[:found])
                if matched is not None:
                    yield matched

    def _runs(self, batch: RoutedBatch, limit: int) -> Iterator[tuple[Positions, Positions, Ids]]:
        n = batch.n_rows
        if self._sorted is not None:
            bounds, is_null = _bounds(batch, self._bands, self._functions)
            for starts, stops, sequence in self._sorted.ranges(bounds, n):
                if is_null is not None:
                    stops[is_null] = starts[is_null]
                yield starts, stops, sequence
            return
        if self._flag is not None:
            flags = self._stem.store.column(self._flag).words(None, 0, limit)
            sequence = np.flatnonzero(flags).astype(np.int32)
        else:
            sequence = np.arange(limit, dtype=np.int32)
        stops = np.full(n, sequence.shape[0], dtype=np.int64)
        yield np.zeros(n, dtype=np.int64), stops, sequence


def has_keys(graph: Graph, signature: Signature, target: int) -> bool:
    """Whether rows of the target are looked up by keys equal to some of the batch."""
    bit = 1 << target
    return any(c.mask & bit and c.mask & signature.sources for c in graph.classes)


def key_parts(graph: Graph, signature: Signature, target: int) -> list[KeyPart]:
    """One part per key class that the batch and the target share."""
    parts: dict[str, KeyPart] = {}
    for key_class in graph.classes:
        spanned = [s for s in bits(signature.sources) if s in key_class.column_by_source]
        column = key_class.column_by_source.get(target)
        if column is not None and spanned:
            source = spanned[0]
            parts[column] = KeyPart(column, source, key_class.column_by_source[source])
    return list(parts.values())


def _covered_filters(graph: Graph, signature: Signature, target: int) -> list[Expr]:
    reach = signature.sources | 1 << target
    return [f.expr for f in graph.filters if f.mask >> target & 1 and f.mask & ~reach == 0]


def _usable_bands(graph: Graph, signature: Signature, target: int) -> list[Band]:
    """The bands on the one column that has most bounds."""
    by_column: dict[str, list[Band]] = {}
    for predicate in graph.filters:
        for band in predicate.bands:
            if band.target == target and band.probe_mask & ~signature.sources == 0:
                by_column.setdefault(band.column, []).append(band)
    if not by_column:
        return []
    return max(by_column.values(), key=lambda bands: len({band.is_lower for band in bands}))


def key_side(batch: RoutedBatch, parts: list[KeyPart]) -> KeySide:
    """The columns of `batch` that are compared with `parts`."""
    places, ids = batch.origin.places, batch.ids
    return [(places[part.source].column(part.probe), ids[part.source]) for part in parts]


def _drop_nulls(
    batch: RoutedBatch,
    parts: list[KeyPart],
    stored: list[Column],
    positions: Ids,
    rows: Ids,
    n: int,
) -> int:
    """Drop matches with a NULL in a key column that the index did not cover."""
    keep_mask = np.ones(n, dtype=np.bool_)
    for (column, ids), target in zip(key_side(batch, parts), stored, strict=True):
        mask = column.valid(ids)
        if mask is not None:
            keep_mask &= mask[positions[:n]] != 0
        mask = target.valid(rows[:n])
        if mask is not None:
            keep_mask &= mask != 0
    if keep_mask.all():
        return n
    kept = np.flatnonzero(keep_mask)
    positions[: len(kept)] = positions[kept]
    rows[: len(kept)] = rows[kept]
    return len(kept)


def _bounds(
    batch: RoutedBatch, bands: list[Band], functions: Mapping[str, UserFunction]
) -> tuple[Bounds, npt.NDArray[np.bool_] | None]:
    """The tightest bounds of each row of the batch, and which rows match nothing because a bound is
    NULL (None: no row); the bounds of those rows mean nothing.
    """
    lowest = highest = is_null = None
    for band in bands:
        array = evaluate(band.probe, batch.column, batch.n_rows, functions)
        if array.null_count:
            nulls = np.asarray(array.is_null())
            is_null = nulls if is_null is None else is_null | nulls
        values = _shifted(array, band)
        if band.is_lower:
            lowest = values if lowest is None else np.maximum(lowest, values)
        else:
            highest = values if highest is None else np.minimum(highest, values)
    return Bounds(lowest, highest), is_null


def _shifted(array: pa.Array, band: Band) -> Values:
    """Values plus the band's shift, widened where floating point rounds and clamped where integers
    would overflow. Rows that are NULL get some value.
    """
    values = sort_values(array)
    if values.dtype == np.float64:
        values = np.where(np.isnan(values), np.inf, values)
        if not band.shift:
            return values
        # Both the comparison's sum and ours may have rounded; float32 does so in the eighth digit.
        # Where infinity comes in, the sum says nothing about the summand: no bound.
        direction = -1.0 if band.is_lower else 1.0
        digits = 1e-12 if pa.types.is_float64(array.type) else 1e-6
        with np.errstate(invalid="ignore", over="ignore"):
            shifted = values + band.shift
            shifted += direction * digits * (np.abs(shifted) + abs(band.shift))
            shifted = np.nextafter(shifted, direction * np.inf)
        return np.where(np.isfinite(shifted), shifted, direction * np.inf)
    if not band.shift:
        return values
    info = np.iinfo(np.int64)
    shift = int(band.shift)
    if shift > 0:
        return np.where(values > info.max - shift, info.max, values + shift)
    return np.where(values < info.min - shift, info.min, values + shift)
