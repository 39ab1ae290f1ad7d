"""Heavy keys: values so frequent that the cell they hash to would do most of the work.

A cell that reads a hashed relation reads all of it and keeps its part, so it can keep another part just
as well. For a heavy key, the rows of the relation that streams by last are dealt out over all cells of
the dimension, and all other relations' rows with that key stay in every one of them. A result then has
its last part in one cell, as before, and finds the others there.

All cells must deal out alike, without talking to each other: each reads the same sample of the last
relation, from the same places, and finds the same keys.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from eddies.core.state.columns import column_of
from eddies.sources.source import Split
from eddies.spark.reading import HashFilter, Heavy, Reading

__all__ = ["heavy_keys"]

_SAMPLED_SPLITS = 4
_SAMPLED_ROWS = 1 << 16  # of each
_FEWEST_ROWS = 1024  # of a sample that says anything


def heavy_keys(last: Reading) -> Heavy:
    """The heavy keys of all dimensions that divide `last` by hash.

    None where its rows may come in another order when they are read again: they could not be dealt
    out alike.
    """
    found: dict[int, npt.NDArray[np.uint64]] = {}
    if not all(getattr(split, "is_repeatable", True) for split in last.splits):
        return found
    for one in last.filters:
        words = _sample(last, one)
        if words.shape[0] < _FEWEST_ROWS:
            continue
        values, counts = np.unique(words, return_counts=True)
        heavy = values[counts > words.shape[0] / (2 * one.share)]
        if heavy.shape[0]:
            found[one.dimension] = heavy
    return found


def _sample(reading: Reading, one: HashFilter) -> npt.NDArray[np.uint64]:
    """Key words of rows from the beginnings of a few splits."""
    step = max(1, len(reading.splits) // _SAMPLED_SPLITS)
    pieces = [words for split in reading.splits[::step] for words in _words(reading, one, split)]
    return np.concatenate(pieces) if pieces else np.empty(0, dtype=np.uint64)


def _words(reading: Reading, one: HashFilter, split: Split) -> Iterator[npt.NDArray[np.uint64]]:
    batches = split.read([one.column], reading.where, _SAMPLED_ROWS)
    for batch in batches:
        column = column_of(batch.column(0).slice(0, _SAMPLED_ROWS))
        words, valid = column.words(None), column.valid(None)
        yield words if valid is None else words[valid.astype(np.bool_)]
        return
