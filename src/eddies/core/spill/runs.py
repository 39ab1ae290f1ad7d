"""The flushed rows of one relation: runs on disk, partitioned by a key, and loaded again in chunks.

A *run* is what one flush wrote. The rows of a run lie in the file partition by partition, by the
hash of the relation's *home* column: a probe whose key includes that column needs only one
partition. Probes on another key column would need all of them; when such probes are to be answered
and the rows are too many to be loaded at once, the runs are written a second time, partitioned by
that column. Only probes without any key (bands, Cartesian products) meet every row.

A row on disk keeps its arrival number, and its run is known from where it lies. Both decide who may
match it (see `state_modes.spilling`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddies.core.graph import Graph, Relation
from eddies.core.modules.stem import SteM
from eddies.core.spill.files import Ordered, Segment, SpillDirectory, SpillFile
from eddies.core.spill.key_filter import FilterRoom, KeyFilter
from eddies.core.spill.narrow import NarrowRows, joined
from eddies.core.spill.partitions import partitions_of, slices_by_partition
from eddies.core.state.columns import Words
from eddies.core.state.narrow_column import narrow_taken
from eddies.core.state.rows import Block, RowStore

__all__ = ["Chunk", "FlushedRows", "Group", "index_bytes"]

Arrivals = npt.NDArray[np.int32]
_PIECE_BYTES = 200  # what is known in memory of a piece on disk
_PIECES_AT_ONCE = 4  # are put in order together before they are written
_ROWS_AT_ONCE = 1 << 16  # are made of what is read
_NUMBERS_BYTES = 8  # arrival and run of a row in memory
_INDEX_BYTES_PER_ROW = 52  # tables are between a quarter and half full


def index_bytes(n_rows: int) -> int:
    """What an index over `n_rows` is expected to take."""
    return _INDEX_BYTES_PER_ROW * n_rows


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows of one partition of one run."""

    run: int
    file: SpillFile
    segment: Segment

    @property
    def n_bytes(self) -> int:
        """Memory the rows will take when loaded, with an index."""
        n_rows = self.segment.n_rows
        return self.segment.n_bytes + _NUMBERS_BYTES * n_rows + index_bytes(n_rows)


class Chunk:
    """Rows read back: a SteM of their own, with the arrival number and the run of each row."""

    def __init__(self, relation: Relation, n_rows: int) -> None:
        self.stem = SteM(relation, n_rows)
        self._names = relation.stored.names
        self._types = relation.stored.types
        self.arrivals: Arrivals = np.empty(n_rows, dtype=np.int32)
        self.runs: Arrivals = np.empty(n_rows, dtype=np.int32)
        self.last_arrival = -1
        self.last_run = -1

    def add(self, rows: NarrowRows, run: int) -> None:
        """Take rows in, as they were written."""
        first = self.stem.store.n_rows
        last = first + rows.n_rows
        self.arrivals[first:last] = rows.numbers(len(self._names))
        self.runs[first:last] = run
        self.last_arrival = max(self.last_arrival, int(self.arrivals[first:last].max(initial=-1)))
        self.last_run = max(self.last_run, run)
        columns = dict(zip(self._names, rows.columns(self._types), strict=True))
        self.stem.build(Block(columns, rows.n_rows))

    @property
    def n_bytes(self) -> int:
        """Memory of the rows and their index."""
        return self.stem.n_bytes + self.arrivals.nbytes + self.runs.nbytes

    def release(self) -> None:
        """Nobody will ask for the rows again."""
        self.stem.release()


class Group:
    """Pieces on disk that are loaded together: all that there are of some partitions."""

    def __init__(self, partitions: Sequence[int], pieces: Sequence[_Piece]) -> None:
        self.partitions = partitions
        self.pieces = pieces
        self.n_bytes = sum(piece.n_bytes for piece in pieces)

    def with_(self, other: Group) -> Group:
        """Both together."""
        partitions = [*self.partitions, *other.partitions]
        return Group(partitions, [*self.pieces, *other.pieces])


class FlushedRows:
    """See the module docstring. `flush` writes, `chunks` reads; nothing is ever changed."""

    def __init__(
        self,
        graph: Graph,
        relation: Relation,
        directory: SpillDirectory,
        n_partitions: int,
        piece_bytes: int,
        filter_room: FilterRoom,
        expected_rows: int = 0,
    ) -> None:
        self.relation = relation
        self.n_partitions = n_partitions
        self.keys = _key_columns(graph, relation)
        self.home = self.keys[0] if self.keys else None
        self.n_runs = 0
        self.n_rows = 0
        self.first_arrival = 2**31 - 1
        self.is_on_disk = np.zeros(n_partitions, dtype=np.bool_)
        self._directory = directory
        self._piece_bytes = piece_bytes
        self._file: SpillFile | None = None
        self._n_pieces = 0
        self._schema = pa.schema([*relation.stored, pa.field("arrival", pa.int32())])
        self._pieces: list[list[_Piece]] = [[] for _ in range(n_partitions)]
        self._again: dict[str, tuple[int, list[list[_Piece]]]] = {}
        self.filters = {name: KeyFilter(filter_room, expected_rows) for name in self.keys}

    @property
    def n_bytes(self) -> int:
        """Memory held for what is on disk."""
        return sum(f.n_bytes for f in self.filters.values()) + _PIECE_BYTES * self._n_pieces

    def flush(
        self,
        store: RowStore,
        arrivals: Arrivals,
        order: Arrivals,
        starts: npt.NDArray[np.int64],
        is_flushed: npt.NDArray[np.bool_],
    ) -> None:
        """Write the rows of some partitions of `store` as one run. `order` has all rows of the store by
        partition, each of which begins at one of `starts`. They are still in the store afterwards.
        """
        if self._file is None:
            self._file = self._directory.file(f"rows-{self.relation.name[:40]}", self._schema)
        piece_rows = max(64, self._piece_bytes * store.n_rows // max(1, store.n_bytes))
        for group in _put_together(starts, is_flushed, _PIECES_AT_ONCE * piece_rows):
            first, last = int(starts[group[0]]), int(starts[group[-1] + 1])
            rows = order[first:last]
            ordered = self._encoded(store, arrivals[rows], rows)
            owners, slices = [], []
            for partition in group:
                stop = int(starts[partition + 1]) - first
                for start in range(int(starts[partition]) - first, stop, piece_rows):
                    owners.append(partition)
                    slices.append((start, min(piece_rows, stop - start)))
            self._n_pieces += len(owners)
            keep = _keeper(self._pieces, owners, self.n_runs, self._file)
            self._file.write(partial(Ordered, ordered, slices), keep, ordered.n_bytes)
            self.first_arrival = min(self.first_arrival, int(arrivals[rows.min()]))
            self.n_rows += rows.shape[0]
        self.is_on_disk |= is_flushed & (np.diff(starts) > 0)
        self.n_runs += 1

    def _encoded(self, store: RowStore, arrivals: Arrivals, rows: Arrivals) -> NarrowRows:
        values = [narrow_taken(store.column(name), rows) for name in self.relation.stored.names]
        return NarrowRows.of([*values, pa.array(arrivals)], rows.shape[0])

    def add_keys(self, place: RowStore | Block) -> None:
        """These rows have arrived: enter their keys into the filters."""
        for name, key_filter in self.filters.items():
            key_filter.add(place.column(name).words(None))

    def passing(self, name: str, words: Words) -> npt.NDArray[np.int32] | None:
        """The positions of those key words that a row may have in column `name`; None: all may."""
        return self.filters[name].passing(words)

    @property
    def share_found(self) -> float:
        """How many of the tuples that came to probe the filters let pass."""
        return min((one.share_found for one in self.filters.values()), default=1.0)

    # Back again

    def groups(self, column: str | None, room_bytes: int) -> list[Group]:
        """Everything that is on disk now, by partitions of `column`, which are put together as far as
        they can be loaded at once.
        """
        if self._file is not None:
            self._file.settle()
        everything = Group(range(self.n_partitions), _joined(self._pieces))
        if column is None or everything.n_bytes <= room_bytes:
            return [everything]
        groups: list[Group] = []
        for partition, pieces in enumerate(self._clustered(column)):
            group = Group([partition], pieces)
            if groups and groups[-1].n_bytes + group.n_bytes <= room_bytes:
                group = groups.pop().with_(group)
            groups.append(group)
        return groups

    def chunks(self, group: Group, room_bytes: int) -> Iterator[Chunk]:
        """The rows of a group, in chunks that fit. Whoever gets a chunk releases it."""
        waiting: list[_Piece] = []
        used = 0
        for piece in group.pieces:
            if waiting and used + piece.n_bytes > room_bytes:
                yield self._loaded(waiting)
                waiting, used = [], 0
            waiting.append(piece)
            used += piece.n_bytes
        if waiting:
            yield self._loaded(waiting)

    def _loaded(self, pieces: Sequence[_Piece]) -> Chunk:
        chunk = Chunk(self.relation, sum(piece.segment.n_rows for piece in pieces))
        try:
            for run, file, segments in _by_run(pieces):
                for rows in file.read(segments, _ROWS_AT_ONCE):
                    chunk.add(rows, run)
        except BaseException:
            chunk.release()
            raise
        return chunk

    def _clustered(self, column: str) -> list[list[_Piece]]:
        """The pieces by partitions of `column`, written again if they are not."""
        if column == self.home:
            return self._pieces
        n_done, clustered = self._again.get(column, (0, [[] for _ in range(self.n_partitions)]))
        if n_done < self.n_runs:
            file = self._directory.file(f"again-{self.relation.name[:40]}", self._schema)
            position = self.relation.stored.get_field_index(column)
            new = [piece for pieces in self._pieces for piece in pieces if piece.run >= n_done]
            for run in range(n_done, self.n_runs):
                mine = [piece for piece in new if piece.run == run]
                for rows in self._gathered(mine):
                    self._write_again(rows, run, position, file, clustered)
            file.settle()
            self._again[column] = (self.n_runs, clustered)
        return clustered

    def _gathered(self, pieces: Sequence[_Piece]) -> Iterator[NarrowRows]:
        """The rows of `pieces`, several of them together."""
        gathered: list[NarrowRows] = []
        for piece in pieces:
            gathered += piece.file.read([piece.segment], piece.segment.n_rows)
            if sum(rows.n_bytes for rows in gathered) >= _PIECES_AT_ONCE * self._piece_bytes:
                yield joined(gathered, self._schema)
                gathered = []
        if gathered:
            yield joined(gathered, self._schema)

    def _write_again(
        self,
        rows: NarrowRows,
        run: int,
        position: int,
        file: SpillFile,
        clustered: list[list[_Piece]],
    ) -> None:
        words = rows.columns(self.relation.stored.types)[position].words(None)
        order, starts = slices_by_partition(
            partitions_of(words, self.n_partitions), self.n_partitions
        )
        full = np.flatnonzero(np.diff(starts)).tolist()
        slices = [(int(starts[p]), int(starts[p + 1] - starts[p])) for p in full]
        keep = _keeper(clustered, full, run, file)
        file.write(partial(Ordered, rows, slices, order), keep, rows.n_bytes)


def _keeper(
    pieces: list[list[_Piece]], owners: list[int], run: int, file: SpillFile
) -> Callable[[list[Segment]], None]:
    """Whoever puts segments where they belong: to the pieces of the partitions that own them."""

    def keep(segments: list[Segment]) -> None:
        for partition, segment in zip(owners, segments, strict=True):
            pieces[partition].append(_Piece(run, file, segment))

    return keep


def _put_together(
    starts: npt.NDArray[np.int64], is_flushed: npt.NDArray[np.bool_], most_rows: int
) -> list[list[int]]:
    """Flushed partitions that have rows, neighbours together while they have at most `most_rows`."""
    groups: list[list[int]] = []
    for partition in np.flatnonzero(is_flushed & (np.diff(starts) > 0)).tolist():
        is_next = bool(groups) and starts[groups[-1][-1] + 1] == starts[partition]
        if not is_next or starts[partition + 1] - starts[groups[-1][0]] > most_rows:
            groups.append([])
        groups[-1].append(partition)
    return groups


def _joined(pieces: Sequence[Sequence[_Piece]]) -> list[_Piece]:
    return [piece for some in pieces for piece in some]


def _by_run(pieces: Sequence[_Piece]) -> Iterator[tuple[int, SpillFile, list[Segment]]]:
    """Pieces of one run in one file, in the order of the file."""
    found: dict[tuple[int, str], tuple[SpillFile, list[Segment]]] = {}
    for piece in pieces:
        place = (piece.run, piece.file.path)
        found.setdefault(place, (piece.file, []))[1].append(piece.segment)
    for (run, _), (file, segments) in found.items():
        yield run, file, sorted(segments, key=lambda segment: segment.offset)


def _key_columns(graph: Graph, relation: Relation) -> list[str]:
    """The columns of a relation that joins look up, those with most partners first."""
    partners: dict[str, int] = {}
    for key_class in graph.classes:
        for source in relation.roles:
            if source in key_class.column_by_source:
                name = key_class.column_by_source[source]
                partners[name] = partners.get(name, 0) + len(key_class.column_by_source) - 1
    return sorted(partners, key=lambda name: -partners[name])
