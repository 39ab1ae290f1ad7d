"""Aggregation where the rows come out, so that a huge join result is never materialised.

Each router has an `Aggregator` of its own; they are merged at the end. Sums are exact: those of
integers are kept as two parts, those of decimals as 256-bit decimals, which cannot overflow, and
checked against the result type at the end, as Spark does in ANSI mode. NaN, the largest number in
SQL, is kept apart from the numbers, because Arrow's minimum and maximum pass over it. With groups,
rows go to a table of groups (`group_table`), without to running totals (`totals`). What these do not
do, Arrow does: batches are reduced to partial groups as they come, and partial groups are merged
whenever they have doubled, so memory follows the number of groups.

With `Aggregation.partial` someone above merges again, so groups need not be whole. Then memory is
bounded: more than `_MOST_GROUPS` of them are handed out (`take_out`) and a new collection begins.
Where grouping hardly makes rows fewer, they are passed on as groups of one row for a while, at the
price of a projection, and grouping is tried again later.

If groups may be left out (`Aggregation.having`), more of them are held before any are handed out. Of
what was handed out nobody knows whether it was the whole group: from then on nothing is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from eddies.core.batch import Ids, RoutedBatch
from eddies.core.evaluate import Shared, evaluate, keep, shared_parts
from eddies.core.expr import Column, Expr
from eddies.core.kernels.sums import sum_parts
from eddies.core.modules.folding import Folded
from eddies.core.modules.group_table import GroupTable, accumulator_of
from eddies.core.modules.integer_chain import IntegerChain
from eddies.core.modules.totals import LOW_BITS, Totals
from eddies.core.query import Aggregate, Aggregation, UserFunction
from eddies.core.state.columns import (
    Column as KeyColumn,
)
from eddies.core.state.columns import (
    FixedColumn,
    PairColumn,
    TextColumn,
    column_of,
    is_key_type,
)
from eddies.errors import EvaluationError

__all__ = ["Aggregator"]

_FEWEST_PARTIAL_ROWS = 65_536
_MOST_GROUPS = 1_048_576  # groups that a partial aggregation holds
_MOST_JUDGED = 2_097_152  # the same where groups are left out in the end: 0.3 GB of sums by a key
_TRIED_GROUPS = 262_144  # fewer groups say little about how many rows share one
_WORTH_GROUPING = 0.75  # partial groups are passed on ungrouped above this share of the rows
_PASSED_ON = 1_048_576  # rows passed on before grouping is tried again
_SUMMED_DIGITS = 30  # decimals of so many digits can be added a batch at a time in 128 bits
_PARTIAL = {"count_star": "sum", "count": "sum", "sum": "sum", "min": "min", "max": "max"}


class Aggregator:
    """Running aggregates of one router."""

    def __init__(self, aggregation: Aggregation, functions: Mapping[str, UserFunction]) -> None:
        self._aggregation = aggregation
        self._functions = functions
        self._partials: list[pa.Table] = []
        self._n_partial = 0
        self._merge_at = _FEWEST_PARTIAL_ROWS
        fields = [pa.field(g.name, g.type) for g in aggregation.groups]
        fields += [pa.field(a.name, a.type) for a in aggregation.aggregates]
        self._schema = pa.schema(fields)
        self._handed_out: list[pa.RecordBatch] = []
        self._may_hand_out = aggregation.partial and bool(aggregation.groups)
        self._table: GroupTable | None = None
        self._can_use_table = True
        self._totals: Totals | None = None
        self._can_use_totals = not aggregation.groups
        self._chains = None if aggregation.groups else _chains(aggregation.aggregates)
        self._n_to_pass_on = 0
        self._n_collected = 0  # rows that the held groups stand for
        self._having = aggregation.having
        given = [aggregate.arg for aggregate in aggregation.aggregates if aggregate.arg is not None]
        self._arguments = list(dict.fromkeys(given))  # a mean has the same one twice
        self._places = [
            None if aggregate.arg is None else self._arguments.index(aggregate.arg)
            for aggregate in aggregation.aggregates
        ]
        self._shared = shared_parts(self._arguments)
        self.n_rows = 0

    def add(self, batch: RoutedBatch) -> None:
        """Take the rows of a complete batch in."""
        n = batch.n_rows
        if n == 0:
            return
        if batch.folded is not None:
            self._add_folded(batch, batch.folded)
            return
        self.n_rows += n
        if self._chains is not None and self._add_chains(batch, self._chains):
            return
        parts: Shared = dict.fromkeys(self._shared)
        values = [
            evaluate(argument, batch.column, n, self._functions, parts)
            for argument in self._arguments
        ]
        arguments = [None if place is None else values[place] for place in self._places]
        if self._can_use_totals and self._add_to_totals(n, arguments):
            return
        self._add_groups(batch, arguments)

    def _add_folded(self, batch: RoutedBatch, folded: Folded) -> None:
        """Take in rows that stand for several results each."""
        n_results = int(folded.weights.sum())
        self.n_rows += n_results
        if not self._aggregation.groups:
            if self._totals is None:
                self._totals = Totals(self._aggregation.aggregates)
            self._totals.add_integers(n_results, folded.sums)
            return
        self._add_groups(batch, [pa.array(folded.weights if s is None else s) for s in folded.sums])

    def _add_groups(self, batch: RoutedBatch, arguments: list[pa.Array | None]) -> None:
        """Take in rows with the arguments of aggregates; that of count(*) is how many results a row
        stands for, if not one.
        """
        n = batch.n_rows
        grouped = bool(self._aggregation.groups)
        if grouped and self._n_to_pass_on <= 0 and self._add_to_table(batch, arguments):
            return
        columns: dict[str, pa.Array] = {}
        keys = []
        for i, group in enumerate(self._aggregation.groups):
            keys.append(f"g{i}")
            columns[f"g{i}"] = _group_key(evaluate(group.expr, batch.column, n, self._functions))
        plan: list[tuple[str, str]] = []
        for i, aggregate in enumerate(self._aggregation.aggregates):
            argument = arguments[i]
            if argument is None:
                argument = pa.repeat(pa.scalar(1, pa.int64()), n) if keys else pa.nulls(n)
            columns[f"a{i}"] = argument
            plan += _expand(i, aggregate, columns, is_grouped=bool(keys))
        if self._n_to_pass_on > 0:
            self._pass_on(keys, columns, plan)
            return
        self._n_collected += n
        if keys:
            table = pa.table(columns)
            partial = table.group_by(keys, use_threads=False).aggregate(plan)
            names = [f"{column}" for column, _ in plan]
            self._take(partial.select([*keys, *(f"{c}_{f}" for c, f in plan)]), keys, names)
        else:
            values = {c: _reduced(columns[c], function, n) for c, function in plan}
            self._take(pa.table(values), [], list(values))

    def _add_chains(self, batch: RoutedBatch, chains: Sequence[IntegerChain | None]) -> bool:
        """Add sums of integers to the running totals; False if they have to be evaluated."""
        if not self._can_use_totals:
            return False
        sums = []
        for chain in chains:
            values = None if chain is None else chain.values(batch)
            if values is None and chain is not None:
                return False
            sums.append(values)
        if self._totals is None:
            self._totals = Totals(self._aggregation.aggregates)
        self._totals.add_integers(batch.n_rows, sums)
        return True

    def _add_to_totals(self, n_rows: int, arguments: list[pa.Array | None]) -> bool:
        """Add a batch to the running totals; False if Arrow has to reduce it."""
        if self._totals is None:
            aggregates = self._aggregation.aggregates
            self._can_use_totals = Totals.can_add(aggregates, arguments)
            if not self._can_use_totals:
                return False
            self._totals = Totals(aggregates)
        self._totals.add(n_rows, arguments)
        return True

    # -- groups in a table -------------------------------------------------------------------------

    def _add_to_table(self, batch: RoutedBatch, arguments: list[pa.Array | None]) -> bool:
        """Take a batch into the group table; False if it has to be grouped by Arrow."""
        if self._table is None and not self._can_use_table:
            return False
        side = [self._key(batch, group.expr) for group in self._aggregation.groups]
        if self._table is None:
            self._table = self._new_table([column.type for column, _ in side], arguments)
            if self._table is None:
                self._can_use_table = False
                return False
        if not self._table.add(side, batch.n_rows, arguments):
            self._empty_table()
            return False
        self._n_collected += batch.n_rows
        if self._may_hand_out:
            self._hand_out_if_useful(self._table.n_groups)
        return True

    def _key(self, batch: RoutedBatch, expr: Expr) -> tuple[KeyColumn, Ids | None]:
        """A group key where it lies if it is a stored column, else computed."""
        if isinstance(expr, Column):
            source_id = batch.origin.source_ids[expr.source]
            stored = batch.origin.places[source_id].column(expr.name)
            kept_as_it_is = isinstance(stored, FixedColumn | PairColumn | TextColumn)
            if kept_as_it_is and not _needs_change(stored.type):
                return stored, batch.ids[source_id]
        array = evaluate(expr, batch.column, batch.n_rows, self._functions)
        return column_of(_group_key(array)), None

    def _new_table(
        self, key_types: list[pa.DataType], arguments: list[pa.Array | None]
    ) -> GroupTable | None:
        if not all(is_key_type(type_) for type_ in key_types):
            return None
        accumulators = []
        for i, aggregate in enumerate(self._aggregation.aggregates):
            argument = arguments[i]
            type_ = None if argument is None else argument.type
            accumulator = accumulator_of(f"a{i}", aggregate, type_)
            if accumulator is None:
                return None
            accumulators.append(accumulator)
        return GroupTable(key_types, accumulators)

    def _empty_table(self) -> None:
        """Make a partial table of the groups in the group table, or of the totals."""
        if self._table is not None and self._table.n_groups:
            self._partials.append(pa.table(self._table.columns()))
            self._n_partial += self._table.n_groups
        if self._totals is not None:
            self._partials.append(pa.table(self._totals.columns()))
            self._n_partial += 1
        self._table = self._totals = None

    # -- groups in Arrow tables --------------------------------------------------------------------

    def _take(self, partial: pa.Table, keys: list[str], names: list[str]) -> None:
        self._partials.append(_widened(partial.rename_columns([*keys, *names])))
        self._n_partial += partial.num_rows
        if self._n_partial >= self._merge_at:
            self._merge_partials()
            self._merge_at = max(_FEWEST_PARTIAL_ROWS, 2 * self._n_partial)
            if self._may_hand_out:
                self._hand_out_if_useful(self._n_partial)

    def _hand_out_if_useful(self, n_groups: int) -> None:
        does_not_pay = n_groups > max(_TRIED_GROUPS, _WORTH_GROUPING * self._n_collected)
        most = _MOST_GROUPS if self._having is None else _MOST_JUDGED
        if not does_not_pay and n_groups <= most:
            return
        self._having = None
        self._empty_table()
        self._handed_out += [self._rows(partial) for partial in self._partials]
        self._partials, self._n_partial, self._n_collected = [], 0, 0
        self._merge_at = _FEWEST_PARTIAL_ROWS
        self._n_to_pass_on = _PASSED_ON if does_not_pay else 0

    def _pass_on(
        self, keys: list[str], columns: dict[str, pa.Array], plan: list[tuple[str, str]]
    ) -> None:
        """Every row as a group of its own."""
        self._n_to_pass_on -= len(columns[keys[0]])
        alone = {key: columns[key] for key in keys}
        for name, function in plan:
            values = columns[name]
            alone[name] = pc.is_valid(values).cast(pa.int64()) if function == "count" else values
        self._handed_out.append(self._rows(pa.table(alone)))

    def take_out(self) -> list[pa.RecordBatch]:
        """The partial rows that are not held any longer, to be given out now."""
        handed_out, self._handed_out = self._handed_out, []
        return handed_out

    def restart(self) -> pa.RecordBatch:
        """The groups so far, which are forgotten: for results that come in parts."""
        self._having = None
        groups = self.result()
        self._partials, self._n_partial, self._n_collected = [], 0, 0
        self._merge_at = _FEWEST_PARTIAL_ROWS
        return groups

    def merge(self, other: Aggregator) -> None:
        """Take over what another router aggregated."""
        if self._table is not None and other._table is not None:
            if self._table.absorb(other._table):
                other._table = None
            else:
                self._empty_table()
        other._empty_table()
        if other._having is None:
            self._having = None
        self.n_rows += other.n_rows
        self._partials += other._partials
        self._n_partial += other._n_partial

    def _merge_partials(self) -> None:
        if len(self._partials) < 2:
            return  # the groups of one partial table differ
        table = pa.concat_tables(self._partials)
        keys = [name for name in table.column_names if name.startswith("g")]
        names = [name for name in table.column_names if not name.startswith("g")]
        how = [self._merge_function(name) for name in names]
        if keys:
            merged = table.group_by(keys, use_threads=False).aggregate(
                list(zip(names, how, strict=True))
            )
            merged = merged.select([*keys, *(f"{c}_{f}" for c, f in zip(names, how, strict=True))])
            merged = merged.rename_columns([*keys, *names])
        else:
            merged = pa.table(
                {c: _merged(table[c], function) for c, function in zip(names, how, strict=True)}
            )
        self._partials, self._n_partial = [merged], merged.num_rows

    def _merge_function(self, name: str) -> str:
        number, _, part = name[1:].partition("_")
        return (
            "max" if part == "nan" else _PARTIAL[self._aggregation.aggregates[int(number)].function]
        )

    def result(self) -> pa.RecordBatch:
        """The final rows; with a partial aggregation, those not yet taken out."""
        self._empty_table()
        self._merge_partials()
        groups, aggregates = self._aggregation.groups, self._aggregation.aggregates
        if self._partials:
            return self._chosen(self._rows(self._partials[0]))
        if groups:
            return pa.RecordBatch.from_pylist([], schema=self._schema)
        row = {a.name: 0 if a.function.startswith("count") else None for a in aggregates}
        arrays = [pa.array([row[a.name]], type=a.type) for a in aggregates]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _chosen(self, groups: pa.RecordBatch) -> pa.RecordBatch:
        """Whole groups without those that are left out; all of them if the condition fails on one."""
        if self._having is None:
            return groups
        n_groups = groups.num_rows
        try:
            mask = keep(self._having, lambda c: groups.column(c.name), n_groups, self._functions)
        except EvaluationError:  # other conditions, known above, may spare the groups that fail
            return groups
        return groups if mask is None else groups.filter(pa.array(mask))

    def _rows(self, table: pa.Table) -> pa.RecordBatch:
        """Partial columns as columns of the answer."""
        groups, aggregates = self._aggregation.groups, self._aggregation.aggregates
        columns = [_single(table[f"g{i}"]) for i in range(len(groups))]
        columns += [_final(i, aggregate, table) for i, aggregate in enumerate(aggregates)]
        columns = [
            pc.cast(column, field.type) for column, field in zip(columns, self._schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _expand(
    i: int, aggregate: Aggregate, columns: dict[str, pa.Array], *, is_grouped: bool
) -> list[tuple[str, str]]:
    """The partial columns of an aggregate and how each is reduced."""
    name = f"a{i}"
    if aggregate.function == "count_star":
        return [(name, "count_all" if pa.types.is_null(columns[name].type) else "sum")]
    if aggregate.function in ("min", "max"):
        columns[name] = _comparable(columns[name])
    type_ = columns[name].type
    if aggregate.function == "sum" and pa.types.is_integer(type_):
        values = columns.pop(name)
        values = values if pa.types.is_uint64(type_) else values.cast(pa.int64())
        if not is_grouped and values.null_count == 0 and pa.types.is_int64(values.type):
            high, low = sum_parts(values.to_numpy())
            columns[f"{name}_high"] = pa.array([high], pa.int64())
            columns[f"{name}_low"] = pa.array([low], pa.int64())
            return [(f"{name}_high", "sum"), (f"{name}_low", "sum")]
        bits = pa.scalar(LOW_BITS, values.type), pa.scalar((1 << LOW_BITS) - 1, values.type)
        columns[f"{name}_high"] = pc.shift_right(values, bits[0]).cast(pa.int64())
        columns[f"{name}_low"] = pc.bit_wise_and(values, bits[1]).cast(pa.int64())
        return [(f"{name}_high", "sum"), (f"{name}_low", "sum")]
    if (
        aggregate.function == "sum"
        and pa.types.is_decimal(type_)
        and type_.precision > _SUMMED_DIGITS
    ):
        columns[name] = columns[name].cast(pa.decimal256(76, type_.scale))
    if aggregate.function in ("min", "max") and pa.types.is_floating(type_):
        values = columns.pop(name)
        is_nan = pc.is_nan(values)
        columns[f"{name}_number"] = pc.if_else(is_nan, pa.scalar(None, type_), values)
        columns[f"{name}_nan"] = is_nan.cast(pa.uint8())
        return [(f"{name}_number", aggregate.function), (f"{name}_nan", "max")]
    return [(name, aggregate.function)]


def _comparable(array: pa.Array) -> pa.Array:
    """Arrow has no minimum of durations and half floats: the same order in types that have one."""
    if pa.types.is_duration(array.type):
        return array.cast(pa.int64())
    return array.cast(pa.float32()) if pa.types.is_float16(array.type) else array


def _needs_change(type_: pa.DataType) -> bool:
    """Whether `_group_key` would make another array of this type."""
    return bool(pa.types.is_floating(type_) or pa.types.is_duration(type_))


def _group_key(array: pa.Array) -> pa.Array:
    """Arrow groups floats by their bits; for SQL zero has no sign and every NaN is the same."""
    array = _comparable(array)
    if not pa.types.is_floating(array.type):
        return array
    nan, zero = pa.scalar(float("nan"), array.type), pa.scalar(0.0, array.type)
    return pc.if_else(pc.is_nan(array), nan, pc.add(array, zero))


def _widened(partial: pa.Table) -> pa.Table:
    """Decimal sums with room for any number of batches."""
    for i, field in enumerate(partial.schema):
        if field.name.startswith("a") and pa.types.is_decimal128(field.type):
            wide = partial.column(i).cast(pa.decimal256(76, field.type.scale))
            partial = partial.set_column(i, field.name, wide)
    return partial


def _reduced(array: pa.Array, function: str, n: int) -> pa.Array:
    """One batch reduced to one value."""
    if function == "count_all":
        return pa.array([n], pa.int64())
    if function == "count":
        return pa.array([n - array.null_count], pa.int64())
    return _merged(array, function)


def _merged(column: pa.ChunkedArray | pa.Array, function: str) -> pa.Array:
    value = pc.sum(column) if function == "sum" else pc.min_max(column)[function]
    return pa.repeat(value, 1)  # Python has no date after year 9999 and no nanoseconds


def _single(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _final(i: int, aggregate: Aggregate, table: pa.Table) -> pa.Array:
    name = f"a{i}"
    if f"{name}_nan" in table.column_names:
        return _with_nan(aggregate.function, table[f"{name}_number"], table[f"{name}_nan"])
    if f"{name}_high" not in table.column_names:
        return _fitting(_single(table[name]), aggregate)
    return _whole_sum(_single(table[f"{name}_high"]), _single(table[f"{name}_low"]), aggregate)


def _whole_sum(high: pa.Array, low: pa.Array, aggregate: Aggregate) -> pa.Array:
    """`high * 2**32 + low` as the type of the result."""
    carry = pc.shift_right(low, LOW_BITS)
    try:
        upper = pc.add_checked(high, carry)
        lower = pc.bit_wise_and(low, (1 << LOW_BITS) - 1)
        if pa.types.is_decimal(aggregate.type):
            scaled = pc.multiply(_whole(upper), pa.scalar(Decimal(1 << LOW_BITS)))
            return pc.cast(pc.add(scaled, _whole(lower)), aggregate.type)
        shifted = pc.shift_left(upper.cast(pa.int32()).cast(pa.int64()), LOW_BITS)
        return pc.cast(pc.add(shifted, lower), aggregate.type)
    except pa.ArrowInvalid as error:
        raise _overflow(aggregate) from error


def _whole(values: pa.Array) -> pa.Array:
    return values.cast(pa.decimal128(19, 0))


def _with_nan(function: str, numbers: pa.ChunkedArray, is_nan: pa.ChunkedArray) -> pa.Array:
    """NaN is the largest number: any NaN is the maximum, and only NaN makes it the minimum."""
    number, nan = _single(numbers), pc.equal(_single(is_nan), 1)
    if function == "min":
        nan = pc.and_(nan, pc.is_null(number))
    return pc.if_else(pc.fill_null(nan, False), pa.scalar(float("nan"), number.type), number)


def _fitting(values: pa.Array, aggregate: Aggregate) -> pa.Array:
    if not pa.types.is_decimal256(values.type):
        return values
    try:
        return pc.cast(values, aggregate.type)
    except pa.ArrowInvalid as error:
        raise _overflow(aggregate) from error


def _overflow(aggregate: Aggregate) -> EvaluationError:
    return EvaluationError(
        f"{aggregate.function} {aggregate.name!r} overflows {aggregate.type}; "
        "cast its argument to a decimal"
    )


def _chains(aggregates: Sequence[Aggregate]) -> list[IntegerChain | None] | None:
    """Of each aggregate the chain that it sums up (None: it counts rows); None if one is no chain."""
    found: list[IntegerChain | None] = []
    for aggregate in aggregates:
        chain = None if aggregate.arg is None else IntegerChain.of(aggregate.arg)
        if aggregate.function != "count_star" and (aggregate.function != "sum" or chain is None):
            return None
        found.append(chain)
    return found
