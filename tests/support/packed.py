"""Packed rows taken apart: `cell, relation, payload` as tables, ends and ticks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from eddies.spark.exchange import Pack
from eddies.spark.reading import coordinates_of
from eddies.spark.stream_source import TICK

__all__ = ["N_CELLS", "Unpacked", "hashed_by", "unpacked"]

N_CELLS = 4


def hashed_by(column: str, relation: int) -> Pack:
    """Every row to the cell that its `column` says."""
    return Pack(relation, ((column, N_CELLS, 1),), None, (0,))


@dataclass
class Unpacked:
    """`tables` by relation; `ends` and `ticks` count how often a cell was told."""

    tables: dict[int, pa.Table] = field(default_factory=dict)
    cells: dict[int, set[int]] = field(default_factory=dict)
    ends: Counter[tuple[int, int]] = field(default_factory=Counter)  # (relation, cell)
    ticks: Counter[int] = field(default_factory=Counter)


def unpacked(batches: Iterable[pa.RecordBatch] | pa.Table, keys: dict[int, str]) -> Unpacked:
    """Takes apart what a stream source delivers, and checks that rows are where their key belongs."""
    found = Unpacked()
    pieces: dict[int, list[pa.RecordBatch]] = {}
    for batch in batches.to_batches() if isinstance(batches, pa.Table) else batches:
        for row in batch.to_pylist():
            cell, relation, payload = row["cell"], row["relation"], row["payload"]
            assert 0 <= cell < N_CELLS
            if relation == TICK:
                assert payload == b""
                found.ticks[cell] += 1
            elif payload == b"":
                found.ends[relation, cell] += 1
            else:
                for piece in pa.ipc.open_stream(payload):
                    assert_in_cell(piece, keys[relation], cell)
                    pieces.setdefault(relation, []).append(piece)
    found.tables = {n: pa.Table.from_batches(batches) for n, batches in pieces.items()}
    return found


def assert_in_cell(piece: pa.RecordBatch, key: str, cell: int) -> None:
    coordinates, _ = coordinates_of(piece.column(key), N_CELLS)
    assert set(coordinates.tolist()) == {cell}
