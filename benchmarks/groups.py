"""How fast rows are grouped: the compiled table of groups beside Arrow's `group_by`.

    python benchmarks/groups.py

Both get the same batches, one after another, and keep what they have: the table its groups, Arrow its
partial groups, which are merged whenever they have doubled and once at the end. Each figure is the
best of three in nanoseconds of processor time a row, so that neighbours on the machine matter less.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from eddies.core.modules.group_table import GroupTable, accumulator_of
from eddies.core.query import Aggregate, AggregateFunction
from eddies.core.state.columns import column_of

N_ROWS = 4_000_000
BATCH_ROWS = 100_000
_REPEAT = 3
_HOW: dict[AggregateFunction, str] = {"sum": "sum", "count": "count", "min": "min"}
Batches = list[pa.RecordBatch]


def by_table(batches: Batches, n_keys: int, functions: list[AggregateFunction]) -> int:
    """Groups of the first `n_keys` columns; the number of groups."""
    types = batches[0].schema.types
    accumulators = []
    for i, function in enumerate(functions):
        type_ = types[n_keys + i]
        accumulator = accumulator_of(f"a{i}", Aggregate("", function, None, type_), type_)
        assert accumulator is not None
        accumulators.append(accumulator)
    table = GroupTable(types[:n_keys], accumulators)
    for batch in batches:
        side = [(column_of(column), None) for column in batch.columns[:n_keys]]
        assert table.add(side, batch.num_rows, batch.columns[n_keys:])
    return int(pa.table(table.columns()).num_rows)


def by_arrow(batches: Batches, n_keys: int, functions: list[AggregateFunction]) -> int:
    """The same with Arrow."""
    names = batches[0].schema.names
    keys, values = names[:n_keys], names[n_keys:]
    first = [(name, _HOW[function]) for name, function in zip(values, functions, strict=True)]
    again = [(name, "sum" if how == "count" else how) for name, how in first]
    held: list[pa.Table] = []
    n_held, merge_at = 0, 65_536

    def grouped(table: pa.Table, plan: list[tuple[str, str]]) -> pa.Table:
        found = table.group_by(keys, use_threads=False).aggregate(plan)
        return found.select([*keys, *(f"{name}_{how}" for name, how in plan)]).rename_columns(names)

    for batch in batches:
        held.append(grouped(pa.Table.from_batches([batch]), first))
        n_held += held[-1].num_rows
        if n_held >= merge_at:
            held = [grouped(pa.concat_tables(held, promote_options="permissive"), again)]
            n_held = held[0].num_rows
            merge_at = max(65_536, 2 * n_held)
    return int(grouped(pa.concat_tables(held, promote_options="permissive"), again).num_rows)


def shapes() -> dict[str, tuple[pa.Table, int, list[AggregateFunction]]]:
    """Keys first, then the values of each aggregate."""
    random = np.random.default_rng(1)
    customers = random.integers(0, 100_000, N_ROWS)
    orders = np.arange(N_ROWS) // 4 * 37
    money = pa.array(random.integers(0, 10**7, N_ROWS)).cast(pa.decimal128(19, 0))
    money = money.cast(pa.decimal128(25, 4))
    flags = pa.array(["A", "N", "R"]).take(pa.array(customers % 3))
    priorities = pa.array([f"{n}-PRIORITY" for n in range(5)]).take(pa.array(customers % 5))
    names = pa.array([f"Customer#{n:09}" for n in range(100_000)]).take(pa.array(customers))
    days = pa.array((orders % 2400).astype(np.int32)).cast(pa.date32())
    ones = pa.array(random.integers(0, 50, N_ROWS))
    return {
        "100 K integers, sum of decimals": (pa.table({"k": customers, "m": money}), 1, ["sum"]),
        "15 pairs of short text, 2 sums": (
            pa.table({"f": flags, "p": priorities, "m": money, "n": ones}),
            2,
            ["sum", "sum"],
        ),
        "100 K texts of 18 bytes, count": (pa.table({"k": names, "n": ones}), 1, ["count"]),
        "1 M pairs (integer, date), sum": (
            pa.table({"k": orders, "d": days, "n": ones}),
            2,
            ["sum"],
        ),
    }


def nanoseconds(run: Callable[[], int]) -> float:
    """Processor time a row of the best run."""
    best = float("inf")
    for _ in range(_REPEAT):
        started = time.process_time()
        run()
        best = min(best, time.process_time() - started)
    return best / N_ROWS * 1e9


def main() -> None:
    for name, (table, n_keys, functions) in shapes().items():
        batches = table.to_batches(max_chunksize=BATCH_ROWS)
        assert by_table(batches, n_keys, functions) == by_arrow(batches, n_keys, functions)
        ours = nanoseconds(lambda: by_table(batches, n_keys, functions))  # noqa: B023
        arrow = nanoseconds(lambda: by_arrow(batches, n_keys, functions))  # noqa: B023
        print(f"{name:34} table {ours:6.1f} ns, Arrow {arrow:6.1f} ns a row: {arrow / ours:.1f} x")


if __name__ == "__main__":
    main()
