"""Subqueries inside the eddy: EXISTS, IN, NOT IN and correlated aggregates answer as DuckDB does.

Plans are made as for Spark, with every question asked in the block. Blocks run in the cells that
`plan_cells` divides them into; the texts above them and between them run in DuckDB.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace

import duckdb
import pyarrow as pa
import pytest
import sqlglot

from eddies.core.eddy import Eddy
from eddies.core.graph import make_graph
from eddies.core.options import Options
from eddies.core.query import Query
from eddies.errors import OptionError
from eddies.observe.explain import explain_query
from eddies.spark.cells import CellPlan, RelationSize, plan_cells, separate_roles
from eddies.spark.reading import coordinates_of
from eddies.sql import SqlPlan, plan
from tests.support.bag import assert_same_bag

COLUMNS = {
    "t": {"k": pa.int64(), "j": pa.int32(), "x": pa.int64(), "s": pa.string()},
    "u": {"k": pa.int64(), "j": pa.int32(), "y": pa.int64(), "s": pa.string()},
    "v": {"k": pa.int64(), "z": pa.int64(), "s": pa.string()},
}


def random_tables(rng: random.Random) -> dict[str, pa.Table]:
    """Small tables with NULLs and duplicates; some are empty."""
    tables = {}
    for name, columns in COLUMNS.items():
        n_rows = rng.choice((0, 1, 7, 40))
        null = rng.choice((0.0, 0.0, 0.1))
        arrays = {}
        for column, type_ in columns.items():
            numbers = [None if rng.random() < null else rng.randrange(9) for _ in range(n_rows)]
            is_text = pa.types.is_string(type_)
            values = [n if n is None or not is_text else "abc"[n % 3] for n in numbers]
            arrays[column] = pa.array(values, type_)
        tables[name] = pa.table(arrays)
    return tables


def random_question(rng: random.Random, outer: str) -> str:
    """A condition on rows of `outer` that has a subquery."""
    inner = rng.choice("tuv")
    other = {"t": "x", "u": "y", "v": "z"}[inner]
    own = {"t": "x", "u": "y", "v": "z"}[outer]
    more = rng.choice(("", f" AND i.{other} > 3", " AND i.s <> 'a'", f" AND i.{other} = 2"))
    between = rng.choice(("", f" AND i.s <> {outer}.s", f" AND i.{other} < {outer}.{own}"))
    key = f"i.k = {outer}.k"
    if inner != "v" and outer != "v" and rng.random() < 0.3:
        key += f" AND {outer}.j = i.j"
    kind = rng.randrange(5)
    if kind == 0:
        return f"EXISTS (SELECT * FROM {inner} i WHERE {key}{more}{between})"
    if kind == 1:
        return f"NOT EXISTS (SELECT 1 FROM {inner} i WHERE {key}{more}{between})"
    if kind == 2:
        return f"{outer}.k IN (SELECT i.k FROM {inner} i WHERE i.k < 8{more})"
    if kind == 3:
        return f"{outer}.{own} NOT IN (SELECT i.{other} FROM {inner} i WHERE i.k > 4{more})"
    aggregate = rng.choice(("min", "max", "sum", "avg"))
    value = rng.choice((f"{aggregate}(i.{other})", f"2 * {aggregate}(i.{other})"))
    comparison = rng.choice(("=", "<", ">=", "<>"))
    return f"{outer}.{own} {comparison} (SELECT {value} FROM {inner} i WHERE {key}{more})"


def random_text(rng: random.Random) -> str:
    joined = rng.choice(("t", "t, u", "t, u, v"))
    conditions = []
    if "u" in joined:
        conditions.append("t.k = u.k")
    if "v" in joined:
        conditions.append(rng.choice(("v.k = u.k", "v.z = t.x")))
    conditions += [random_question(rng, "t") for _ in range(rng.randint(1, 3))]
    if rng.random() < 0.3:
        conditions.append("t.x > 1")
    items = rng.choice(("t.k, t.x, t.s", "count(*) AS n, sum(t.x) AS total", "t.s, count(*) AS n"))
    group = " GROUP BY t.s" if items.startswith("t.s,") else ""
    return f"SELECT {items} FROM {joined} WHERE {' AND '.join(conditions)}{group}"


class Above:
    """DuckDB in Spark's place."""

    def __init__(self, tables: Mapping[str, pa.Table]) -> None:
        self._connection = duckdb.connect()
        self._connection.execute("SET threads = 1")
        self.tables = dict(tables)

    def answer(self, text: str) -> pa.Table:
        for name, table in self.tables.items():
            self._connection.register(name, table)
        (translated,) = sqlglot.transpile(text, "spark", "duckdb")
        return self._connection.sql(translated).to_arrow_table()

    def schema_of(self, text: str, schemas: Mapping[str, pa.Schema]) -> pa.Schema:
        found = self.answer(text).schema
        # Spark's sum of integers is a bigint, DuckDB's is wider.
        return pa.schema(
            [f.with_type(pa.int64()) if pa.types.is_decimal(f.type) else f for f in found]
        )


def cells_of(query: Query, tables: Mapping[str, pa.Table], n_cells: int) -> Iterator[pa.Table]:
    """The output of every cell of a block."""
    sizes = {s.table: RelationSize(tables[s.table].num_rows, 8, "direct") for s in query.sources}
    separate = separate_roles(query, sizes)
    pairs = zip(separate.sources, query.sources, strict=True)
    by_relation = {own.table: old.table for own, old in pairs}
    graph = make_graph(separate)
    cells = plan_cells(
        graph, {name: sizes[table] for name, table in by_relation.items()}, n_cells, n_cells
    )
    for cell in range(cells.n_cells):
        eddy = Eddy(separate, Options(policy="random", seed=cell, batch_rows=7))
        for name, table in by_relation.items():
            for batch in part_of(cells, cell, name, tables[table]).to_batches():
                eddy.push(name, batch)
            eddy.end(name)
        found = []
        while (rows := eddy.poll()) is not None:
            found.append(rows)
        assert eddy.is_done
        yield pa.Table.from_batches(found, schema=eddy.output.schema)


def part_of(cells: CellPlan, cell: int, relation: str, table: pa.Table) -> pa.Table:
    """The rows of a relation that a cell gets."""
    delivery, coordinates = cells.deliveries[relation], cells.coordinates(cell)
    table = table.combine_chunks()
    for on in delivery.hashed:
        column = table.column(on.column).combine_chunks()
        found, valid = coordinates_of(column, cells.shares[on.dimension])
        keep = found == coordinates[on.dimension]
        table = table.filter(pa.array(keep if valid is None else keep & valid)).combine_chunks()
    if delivery.is_split:
        total, share = table.num_rows, cells.shares[0]
        start, stop = (total * part // share for part in (coordinates[0], coordinates[0] + 1))
        table = table.slice(start, stop - start)
    return table


def planned_for(text: str, above: Above) -> SqlPlan:
    schemas = {name: table.schema for name, table in above.tables.items()}
    return plan(
        text, schemas, host="spark", schema_of=above.schema_of, direct=list(schemas), may_ask=True
    )


def answer(planned: SqlPlan, above: Above, n_cells: int) -> pa.Table:
    above.tables |= planned.constants
    for block in planned.blocks:
        for source in block.query.sources:
            if source.table in planned.derived and source.table not in above.tables:
                found = above.answer(planned.derived[source.table])
                wanted = [
                    source.schema.field(n).type
                    if n in source.schema.names
                    else found.schema.field(n).type
                    for n in found.schema.names
                ]
                above.tables[source.table] = found.cast(
                    pa.schema(zip(found.schema.names, wanted, strict=True))
                )
        parts = list(cells_of(block.query, above.tables, n_cells))
        above.tables[block.name] = pa.concat_tables(parts)
    return above.answer(planned.above or f"SELECT * FROM {planned.blocks[-1].name}")


@pytest.mark.parametrize(
    "first",
    [*range(0, 200, 50), *(pytest.param(n, marks=pytest.mark.slow) for n in range(200, 400, 50))],
)
def test_questions_are_answered_as_by_duckdb(first: int) -> None:
    n_asked = n_groups = 0
    for seed in range(first, first + 50):
        rng = random.Random(f"subqueries {seed}")
        tables = random_tables(rng)
        text = random_text(rng)
        expected = Above(tables).answer(text)
        above = Above(tables)
        planned = planned_for(text, above)
        found = answer(planned, above, rng.choice((1, 2, 3, 8)))
        assert_same_bag(found, expected, text, 11)
        n_asked += sum(len(block.query.exists) for block in planned.blocks)
        n_groups += any("correlated subquery is computed" in r for r in planned.reasons)
    assert n_asked > 20
    assert n_groups > 5


def test_a_question_needs_all_rows_in_memory() -> None:
    tables = random_tables(random.Random(1))
    planned = planned_for("SELECT x FROM t WHERE k IN (SELECT k FROM u)", Above(tables))
    (block,) = planned.blocks
    with pytest.raises(OptionError, match="EXISTS"):
        Eddy(block.query, Options(memory="1MB"))


def test_nothing_is_routed_before_a_question_can_be_answered() -> None:
    planned = planned_for(
        "SELECT x FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.k)",
        Above(random_tables(random.Random(1))),
    )
    (block,) = planned.blocks
    eddy = Eddy(replace(block.query), Options())
    rows = {"k": [1, 2], "x": [10, 20]}
    batch = pa.RecordBatch.from_pydict(rows, pa.schema([("k", pa.int64()), ("x", pa.int64())]))
    eddy.push("t", batch)
    assert eddy.poll() is None
    eddy.push("u", pa.RecordBatch.from_pydict({"k": pa.array([1], pa.int64())}))
    eddy.end("t")
    assert eddy.poll() is None
    eddy.end("u")
    found = eddy.poll()
    assert found is not None
    assert found.column(0).to_pylist() == [20]


def test_a_question_can_be_explained() -> None:
    text = "SELECT t.x FROM t, u WHERE t.k = u.k AND EXISTS (SELECT 1 FROM v WHERE v.k = t.k)"
    schemas = {name: pa.schema(columns.items()) for name, columns in COLUMNS.items()}
    planned = plan(text, schemas, host="spark", may_ask=True)
    explained = explain_query(planned.blocks[0].query)
    assert "some:" in explained
    assert "-> result" in explained
