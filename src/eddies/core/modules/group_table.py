"""Groups and their running totals, kept by compiled kernels.

Arrow groups every batch anew and merges the partial groups later; here a row finds its group in a
hash table that lives as long as the aggregation, and its values are added to the group's totals in
place. Keys are read where they lie (row ids into a store), so that strings are compared but never
copied, except once for each new group.

Equal keys have equal words. Unless the words are the keys themselves, every row is compared with the
key of its group. Two different keys with one word are a matter of chance that practically does not
come up; then `add` refuses the batch and the caller groups it in another way.

NULL is a group key like any other: it has a word of its own, and is told from a value of the same
word by comparing.

Known limitations: minimum and maximum of strings, floats and decimals are not computed here; see
`accumulator_of`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eddies.core.kernels import grouping
from eddies.core.kernels.folding import sum_heads
from eddies.core.kernels.words import mix_words, text_words
from eddies.core.query import Aggregate
from eddies.core.state.columns import (
    Column,
    Ids,
    TextColumn,
    Words,
    column_of,
    empty_column,
    key_width,
)
from eddies.core.state.keys import KeySide, is_exact, verify_keys

__all__ = ["Accumulator", "GroupTable", "accumulator_of"]

_FEWEST_SLOTS = 1024
_FULLEST = 0.5  # share of slots that are taken before the table grows
_NULL_WORD = np.uint64(0x9AE16A3B2F90404F)
_NO_NULLS = np.empty(0, np.uint8)

Groups = npt.NDArray[np.int32]
Totals = npt.NDArray[Any]  # the dtype is that of the aggregate


class Accumulator(Protocol):
    """The totals of one aggregate, one entry a group."""

    def reserve(self, n_groups: int) -> None:
        """Make room for so many groups; new totals are empty."""
        ...

    def add(self, groups: Groups, values: pa.Array | None) -> None:
        """Add the values of a batch to the totals of their groups; for count(*), how many results each
        row stands for (None: one).
        """
        ...

    def merge(self, groups: Groups, other: _Totals) -> None:
        """Add the totals of another accumulator, whose group i is `groups[i]` here, all different."""
        ...

    @property
    def totals(self) -> _Totals:
        """The totals themselves."""
        ...

    @property
    def merges_with(self) -> object:
        """Equal for accumulators whose totals mean the same."""
        ...

    def columns(self, n_groups: int) -> dict[str, pa.Array]:
        """The totals as partial columns of the aggregate."""
        ...


class _Totals:
    """Zeroed vectors that grow: `width` numbers a group, and whether the group has a value."""

    def __init__(self, dtype: str, width: int = 1) -> None:
        self._width = width
        self.numbers: Totals = np.zeros(0, dtype)
        self.seen = np.zeros(0, np.uint8)

    def reserve(self, n_groups: int) -> None:
        n_known = self.seen.shape[0]
        if n_groups > n_known:
            room = max(n_groups, 2 * n_known)
            self.numbers = _longer(self.numbers, room * self._width)
            self.seen = _longer(self.seen, room)

    @property
    def totals(self) -> _Totals:
        return self

    @property
    def merges_with(self) -> object:
        return type(self)

    def merge(self, groups: Groups, other: _Totals) -> None:
        """Totals that are added up, number by number."""
        rows, n = self._rows(), groups.shape[0]
        rows[groups] += other._rows()[:n]
        self.seen[groups] |= other.seen[:n]

    def _rows(self) -> Totals:
        """One row of numbers for each group."""
        return self.numbers.reshape(-1, self._width)

    def bitmap(self, n_groups: int) -> pa.Buffer | None:
        """Arrow's validity of the first groups."""
        seen = self.seen[:n_groups]
        return None if seen.all() else pa.py_buffer(np.packbits(seen, bitorder="little"))


class _Count(_Totals):
    """Of values that are not NULL; or of rows, whose values are how many results each stands for."""

    def __init__(self, name: str, is_of_rows: bool) -> None:
        super().__init__("i8")
        self._name = name
        self._is_of_rows = is_of_rows

    def add(self, groups: Groups, values: pa.Array | None) -> None:
        if self._is_of_rows and values is not None:
            sum_heads(groups, _numbers(values, pa.int64(), "i8"), self.numbers)
        elif values is None or values.null_count == 0:
            grouping.count_rows(groups, self.numbers)
        else:
            grouping.count_valid(groups, _valid(values), self.numbers)

    def columns(self, n_groups: int) -> dict[str, pa.Array]:
        return {self._name: pa.array(self.numbers[:n_groups])}


class _IntegerSum(_Totals):
    def __init__(self, name: str) -> None:
        super().__init__("i8", 2)
        self._name = name

    def add(self, groups: Groups, values: pa.Array | None) -> None:
        numbers = _numbers(values, pa.int64(), "i8")
        grouping.sum_integers(groups, numbers, _valid(values), self.numbers, self.seen)

    def columns(self, n_groups: int) -> dict[str, pa.Array]:
        missing = self.seen[:n_groups] == 0
        halves = self.numbers[: 2 * n_groups].reshape(n_groups, 2)
        return {
            f"{self._name}_high": pa.array(halves[:, 0], mask=missing),
            f"{self._name}_low": pa.array(halves[:, 1], mask=missing),
        }


class _FloatSum(_Totals):
    def __init__(self, name: str) -> None:
        super().__init__("f8")
        self._name = name

    def add(self, groups: Groups, values: pa.Array | None) -> None:
        numbers = _numbers(values, pa.float64(), "f8")
        grouping.sum_floats(groups, numbers, _valid(values), self.numbers, self.seen)

    def columns(self, n_groups: int) -> dict[str, pa.Array]:
        missing = self.seen[:n_groups] == 0
        return {self._name: pa.array(self.numbers[:n_groups], mask=missing)}


class _DecimalSum(_Totals):
    def __init__(self, name: str, scale: int) -> None:
        super().__init__("u8", 4)
        self._name = name
        self._type = pa.decimal256(76, scale)

    def add(self, groups: Groups, values: pa.Array | None) -> None:
        assert values is not None
        first, n = 2 * values.offset, 2 * len(values)
        pairs = np.frombuffer(values.buffers()[1], np.uint64, first + n)[first:]
        grouping.sum_decimals(groups, pairs, _valid(values), self.numbers, self.seen)

    @property
    def merges_with(self) -> object:
        return type(self), self._type

    def merge(self, groups: Groups, other: _Totals) -> None:
        own, more = self._rows(), other._rows()[: groups.shape[0]]
        carry = np.zeros(groups.shape[0], np.uint64)
        for word in range(3):
            added = more[:, word] + carry
            total = own[groups, word] + added
            # One of the two additions at most goes beyond 64 bits.
            carry = (added < carry).astype(np.uint64) + (total < added).astype(np.uint64)
            own[groups, word] = total
        self.seen[groups] |= other.seen[: groups.shape[0]]

    def columns(self, n_groups: int) -> dict[str, pa.Array]:
        words = self.numbers[: 4 * n_groups].reshape(n_groups, 4).copy()
        words[:, 3] = (words[:, 2].view(np.int64) >> 63).view(np.uint64)
        buffers = [self.bitmap(n_groups), pa.py_buffer(words)]
        return {self._name: pa.Array.from_buffers(self._type, n_groups, buffers)}


class _Extreme(_Totals):
    def __init__(self, name: str, function: str, type_: pa.DataType) -> None:
        super().__init__("i8")
        self._name = name
        self._type = type_
        self._keep = grouping.keep_least if function == "min" else grouping.keep_greatest

    def add(self, groups: Groups, values: pa.Array | None) -> None:
        storage = pa.int32() if self._type.bit_width == 32 else pa.int64()
        if not pa.types.is_integer(self._type):
            values = pc.cast(values, storage)
        numbers = _numbers(values, pa.int64(), "i8")
        self._keep(groups, numbers, _valid(values), self.numbers, self.seen)

    @property
    def merges_with(self) -> object:
        return type(self), self._type

    def merge(self, groups: Groups, other: _Totals) -> None:
        n = groups.shape[0]
        self._keep(groups, other.numbers[:n], other.seen[:n], self.numbers, self.seen)

    def columns(self, n_groups: int) -> dict[str, pa.Array]:
        values = self.numbers[:n_groups].astype(f"i{self._type.bit_width // 8}")
        buffers = [self.bitmap(n_groups), pa.py_buffer(values)]
        return {self._name: pa.Array.from_buffers(self._type, n_groups, buffers)}


def accumulator_of(
    name: str, aggregate: Aggregate, type_: pa.DataType | None
) -> Accumulator | None:
    """The totals of `aggregate` over values of `type_` (None: count(*)); None: not computed here."""
    if aggregate.function in ("count_star", "count"):
        return _Count(name, aggregate.function == "count_star")
    assert type_ is not None
    if aggregate.function == "sum":
        if pa.types.is_signed_integer(type_):
            return _IntegerSum(name)
        if pa.types.is_decimal128(type_):
            return _DecimalSum(name, type_.scale)
        return _FloatSum(name) if type_ in (pa.float32(), pa.float64()) else None
    if pa.types.is_signed_integer(type_) or pa.types.is_date32(type_):
        return _Extreme(name, aggregate.function, type_)
    return _Extreme(name, aggregate.function, type_) if pa.types.is_timestamp(type_) else None


class GroupTable:
    """The groups of one router. After `add` has refused a batch, only `columns` may be called."""

    def __init__(
        self, key_types: Sequence[pa.DataType], accumulators: Sequence[Accumulator]
    ) -> None:
        self._keys = [empty_column(type_) for type_ in key_types]
        self._accumulators = accumulators
        self._slots: Words = np.zeros(2 * _FEWEST_SLOTS, np.uint64)
        self._words: Words = np.zeros(0, np.uint64)
        self._key_words: list[Words] = [np.zeros(0, np.uint64) for _ in key_types]
        self._has_nulls = False
        self.n_groups = 0

    def add(self, side: KeySide, n_rows: int, values: Sequence[pa.Array | None]) -> bool:
        """Take in a batch: its keys and, for each aggregate, its values. False: it is refused."""
        groups = self._groups_of(side, n_rows)
        if groups is None:
            return False
        for accumulator, array in zip(self._accumulators, values, strict=True):
            accumulator.reserve(self.n_groups)
            accumulator.add(groups, array)
        return True

    def absorb(self, other: GroupTable) -> bool:
        """Take in the groups of another table of the same aggregation. False: it is refused."""
        if [a.merges_with for a in self._accumulators] != [
            b.merges_with for b in other._accumulators
        ]:
            return False
        if [key.type for key in self._keys] != [key.type for key in other._keys]:
            return False
        every = np.arange(other.n_groups, dtype=np.int32)
        groups = self._groups_of([(key, every) for key in other._keys], other.n_groups)
        if groups is None:
            return False
        for own, more in zip(self._accumulators, other._accumulators, strict=True):
            own.reserve(self.n_groups)
            more.reserve(other.n_groups)
            own.merge(groups, more.totals)
        return True

    def _groups_of(self, side: KeySide, n_rows: int) -> Groups | None:
        """The group of each row, new ones included; None if two keys cannot be told apart."""
        parts = [_Part(column, ids) for column, ids in side]
        words = self._group_words(parts)
        groups = np.empty(n_rows, np.int32)
        first_rows = np.empty(n_rows, np.int32)
        n_known = self.n_groups
        n_found = self._assign(words, groups, first_rows)
        if n_found > n_known:
            self._enter(parts, words, first_rows[: n_found - n_known], n_found)
        if not self._are_same(parts, groups):
            self.n_groups = n_known
            return None
        self.n_groups = n_found
        return groups

    def columns(self) -> dict[str, pa.Array]:
        """Keys `g0`, `g1`, ... and partial columns of the groups."""
        every = np.arange(self.n_groups, dtype=np.int32)
        found = {f"g{i}": column.take(every) for i, column in enumerate(self._keys)}
        for accumulator in self._accumulators:
            accumulator.reserve(self.n_groups)
            found |= accumulator.columns(self.n_groups)
        return found

    def _assign(self, words: Words, groups: Groups, first_rows: Groups) -> int:
        progress = np.array([0, self.n_groups, self.n_groups], np.int64)
        while True:
            most = int(self._slots.shape[0] // 2 * _FULLEST)
            grouping.assign_groups(words, self._slots, progress, most, groups, first_rows)
            if progress[0] == words.shape[0]:
                return int(progress[1])
            new_words = words[first_rows[: progress[1] - progress[2]]]
            self._slots = np.zeros(4 * self._slots.shape[0], np.uint64)
            known = np.concatenate((self._words[: self.n_groups], new_words))
            grouping.enter_groups(known, self._slots)

    def _enter(self, parts: list[_Part], words: Words, first_rows: Groups, n_found: int) -> None:
        """Keep the keys of new groups, and their words."""
        self._words = _extended(self._words, self.n_groups, words[first_rows])
        for i, part in enumerate(parts):
            rows = first_rows if part.ids is None else part.ids[first_rows]
            self._keys[i].append(column_of(part.column.take(rows)), n_found)
            new_words = part.words[first_rows]
            self._key_words[i] = _extended(self._key_words[i], self.n_groups, new_words)

    def _group_words(self, parts: list[_Part]) -> Words:
        self._has_nulls = self._has_nulls or any(part.valid is not None for part in parts)
        if len(parts) == 1:
            return parts[0].words
        columns = [part.column for part in parts]
        words: Words = np.zeros(parts[0].words.shape[0], np.uint64)
        if is_exact(columns):
            for column, part in zip(columns, parts, strict=True):
                width = key_width(column.type)
                words <<= np.uint64(width)
                words |= part.words & np.uint64((1 << width) - 1)
            return words
        words[:] = parts[0].words
        for part in parts[1:]:
            mix_words(words, part.words)
        return words

    def _are_same(self, parts: list[_Part], groups: Groups) -> bool:
        """Whether every row has the key of its group."""
        if is_exact([part.column for part in parts]) and not self._has_nulls:
            return True
        return all(
            part.is_same(groups, key, words)
            for part, key, words in zip(parts, self._keys, self._key_words, strict=True)
        )


class _Part:
    """One column of the keys of a batch: its words, with one word for every NULL."""

    def __init__(self, column: Column, ids: Ids | None) -> None:
        self.column = column
        self.ids = ids
        self.places: tuple[npt.NDArray[np.int64], Ids] | None = None
        if isinstance(column, TextColumn):
            self.places = column.places(ids)
            self.words: Words = np.empty(self.places[1].shape[0], np.uint64)
            self.has_hashes = text_words(*self.places, self.words) > 0
        else:
            self.words = np.ascontiguousarray(column.words(ids))
        self.valid = column.valid(ids)
        if self.valid is not None and self.valid.all():
            self.valid = None
        if self.valid is not None:
            self.words = np.where(self.valid != 0, self.words, _NULL_WORD)

    def is_same(self, groups: Groups, key: Column, words: Words) -> bool:
        """Whether each row's value is that of its group; `words` are those of the groups' keys."""
        if not grouping.same_words(groups, self.words, words):
            return False
        key_valid = key.valid(groups)
        if self.valid is not None or key_valid is not None:
            ones = np.ones(groups.shape[0], np.uint8)
            valid = ones if self.valid is None else self.valid
            if not np.array_equal(valid, ones if key_valid is None else key_valid):
                return False
        if isinstance(key, TextColumn) and self.places is not None:
            return not self.has_hashes or bool(
                grouping.same_text(groups, self.words, *self.places, *key.places(None))
            )
        if self.column.exact:
            return True
        rows = np.arange(groups.shape[0], dtype=np.int32)
        rows = rows if self.valid is None else np.flatnonzero(self.valid).astype(np.int32)
        n = rows.shape[0]
        return verify_keys(rows, groups[rows], n, [(self.column, self.ids)], [key]) == n


def _extended(words: Words, n_known: int, more: Words) -> Words:
    """`words`, of which `n_known` are in use, with `more` after them."""
    n = n_known + more.shape[0]
    words = words if n <= words.shape[0] else _longer(words, max(n, 2 * words.shape[0]))
    words[n_known:n] = more
    return words


def _longer(numbers: Totals, n: int) -> Totals:
    longer = np.zeros(n, numbers.dtype)
    longer[: numbers.shape[0]] = numbers
    return longer


def _numbers(values: pa.Array | None, type_: pa.DataType, dtype: str) -> Totals:
    """The numbers of an array, anything for NULL."""
    assert values is not None
    values = values if values.type == type_ else values.cast(type_)
    first, n = values.offset, len(values)
    return np.frombuffer(values.buffers()[1], dtype, first + n)[first:]


def _valid(values: pa.Array | None) -> npt.NDArray[np.uint8]:
    if values is None or values.null_count == 0:
        return _NO_NULLS
    return np.asarray(pc.is_valid(values)).astype(np.uint8)
