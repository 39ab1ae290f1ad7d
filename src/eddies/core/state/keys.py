"""Join keys: one or several columns as one 64-bit word a row, and the check behind a hashed word.

A single column of a fixed width is its own word. Several narrow columns (dates, unsigned integers,
booleans) are packed side by side when their widths fit into 64 bits. Everything else (strings, wide
decimals, several signed integers) is hashed, and matches must pass `verify`. Both sides of an equality
have the same type, so the two sides' words are made in the same way; but signed integers may be of
different widths, whose words are the same only one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from eddies.core.kernels.gather import compact
from eddies.core.kernels.words import mix_words, verify_text, verify_words
from eddies.core.state.columns import (
    Bytes,
    Column,
    FixedColumn,
    Ids,
    KeyColumn,
    PairColumn,
    TextColumn,
    Words,
    key_width,
)

__all__ = ["KeyParts", "KeySide", "is_exact", "key_words", "verify_keys"]

KeySide = Sequence[tuple[Column, Ids | None]]
"""The columns of a key and, for each, which of its rows are meant (None: all, in order)."""
KeyParts = Sequence[tuple[KeyColumn, Ids | None]]
"""The same of columns that need not be stored."""


def is_exact(columns: Sequence[KeyColumn]) -> bool:
    """Whether equal words mean equal keys."""
    if len(columns) == 1:
        return columns[0].exact
    return _packed(columns)


def _packed(columns: Sequence[KeyColumn]) -> bool:
    return sum(key_width(column.type) for column in columns) <= 64


def key_words(
    side: KeyParts, start: int = 0, stop: int | None = None
) -> tuple[Words, Bytes | None]:
    """Words of the keys, and a byte mask of those without NULL (None: no NULL at all).

    `start` and `stop` apply to sides whose ids are None.
    """
    if len(side) == 1:
        ((column, ids),) = side
        return column.words(ids, start, stop), column.valid(ids, start, stop)
    columns = [column for column, _ in side]
    parts = [column.words(ids, start, stop) for column, ids in side]
    valid: Bytes | None = None
    for column, ids in side:
        mask = column.valid(ids, start, stop)
        if mask is not None:
            valid = mask if valid is None else valid & mask
    if _packed(columns):
        words = np.zeros(parts[0].shape[0], dtype=np.uint64)
        for column, part in zip(columns, parts, strict=True):
            width = key_width(column.type)
            if width == 64:
                words = part
                continue
            words = (words << np.uint64(width)) | (part & np.uint64((1 << width) - 1))
        return words, valid
    words = parts[0].copy()
    for part in parts[1:]:
        mix_words(words, part)
    return words, valid


def verify_keys(
    positions: Ids, rows: Ids, n: int, probe: KeyParts, stored: Sequence[KeyColumn]
) -> int:
    """Keep, in place, the first `n` matches whose keys are really equal; returns how many remain.

    `positions` point into the probe side's rows, `rows` are rows of the stored columns. Neither side
    may be NULL there.
    """
    for (column, ids), target in zip(probe, stored, strict=True):
        if n == 0:
            break
        if isinstance(column, TextColumn) and isinstance(target, TextColumn):
            n = verify_text(positions, rows, n, *column.places(ids), *target.places(None))
        elif isinstance(column, PairColumn) and isinstance(target, PairColumn):
            low, high = column.halves(_picked(ids, positions[:n]))
            target_low, target_high = target.halves(rows[:n])
            same = (low == target_low) & (high == target_high)
            n = compact(same, positions, rows, n)
        elif isinstance(target, FixedColumn) and target.words_are_values:
            n = verify_words(positions, rows, n, column.words(ids), target.words(None))
        else:
            probe_words = column.words(_picked(ids, positions[:n]))
            n = compact(probe_words == target.words(rows[:n]), positions, rows, n)
    return n


def _picked(ids: Ids | None, positions: Ids) -> npt.NDArray[np.int32]:
    return positions if ids is None else ids[positions]
