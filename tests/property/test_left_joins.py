"""LEFT JOIN inside the eddy answers as DuckDB does: NULLs, duplicates, any cells, batches and order."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pyarrow as pa
import pytest

from eddies.core.eddy import Eddy
from eddies.core.graph import make_graph
from eddies.core.options import Options
from eddies.core.query import Query
from eddies.errors import OptionError, PlanError
from eddies.observe.explain import explain_query
from eddies.spark.cells import RelationSize, plan_cells, separate_roles
from eddies.sql import SqlPlan, plan
from tests.property.test_subqueries import COLUMNS, Above, answer, part_of, random_tables
from tests.support.bag import assert_same_bag

FIFTH = {"w": {"k": pa.int64(), "z": pa.int64(), "s": pa.string()}}
OWN = {"t": "x", "u": "y", "v": "z", "w": "z"}


def tables_of(rng: random.Random) -> dict[str, pa.Table]:
    tables = random_tables(rng)
    tables["w"] = random_tables(rng)["v"]
    return tables


def random_left_join(rng: random.Random, right: str, around: list[str]) -> str:
    outer, own, other = rng.choice(around), OWN[right], rng.choice(around)
    keys = [f"{right}.k = {outer}.k", f"{outer}.{OWN[outer]} = {right}.k", f"{right}.s = {outer}.s"]
    if right == "u" and outer == "t":
        keys.append("t.k = u.k AND u.j = t.j")
    more = [
        "",
        "",
        f" AND {right}.{own} > 3",
        f" AND {right}.s <> 'a'",
        f" AND {right}.s <> {outer}.s",
        f" AND {right}.{own} < {outer}.{OWN[outer]}",
        f" AND {right}.{own} + {outer}.k = {other}.{OWN[other]}",
        f" AND {right}.s IS NULL",
    ]
    return f" LEFT JOIN {right} ON {rng.choice(keys)}{rng.choice(more)}"


def random_text(rng: random.Random) -> str:
    joined = rng.choice((["t"], ["t", "u"], ["t", "u"], ["t", "u", "v"]))
    from_ = "t"
    if "u" in joined:
        from_ += " JOIN u ON t.k = u.k"
    if "v" in joined:
        from_ += rng.choice((" JOIN v ON v.k = u.k", " JOIN v ON v.z = t.x"))
    right = [name for name in "uvw" if name not in joined]
    rng.shuffle(right)
    right = right[: rng.randint(1, 2)]
    for name in right:
        from_ += random_left_join(rng, name, joined)
    last = right[-1]
    where = rng.choice(("", "", " WHERE t.x > 1", " WHERE t.s = 'a' AND t.k < 6"))
    own = f"{last}.{OWN[last]}"
    items = rng.choice(
        (
            f"t.k, t.x, {last}.k AS rk, {own} AS ro, {last}.s AS rs",
            f"t.x, coalesce({own}, -1) AS c, {last}.k IS NULL AS missing",
            f"count(*) AS n, count({own}) AS m, sum({own}) AS total, sum(t.x) AS sx",
            f"{last}.s, count(*) AS n, sum({own} + t.x) AS total, min({last}.s) AS low",
            f"t.s, sum(CASE WHEN {last}.k IS NULL THEN 1 ELSE 0 END) AS none, max({own}) AS top",
        )
    )
    group = f" GROUP BY {items.partition(',')[0]}" if items[2:5] == "s, " else ""
    return f"SELECT {items} FROM {from_}{where}{group}"


def planned_for(text: str, tables: Mapping[str, pa.Table]) -> SqlPlan:
    schemas = {name: table.schema for name, table in tables.items()}
    names = list(schemas)
    return plan(text, schemas, host="spark", direct=names, may_ask=True, may_pad=names)


def cells_of(
    query: Query, tables: Mapping[str, pa.Table], n_cells: int, options: Options, rng: random.Random
) -> Iterator[pa.Table]:
    """The output of every cell of a block, whose relations arrive in pieces and in any order."""
    sizes = {s.table: RelationSize(tables[s.table].num_rows, 8, "direct") for s in query.sources}
    separate = separate_roles(query, sizes)
    pairs = zip(separate.sources, query.sources, strict=True)
    by_relation = {own.table: old.table for own, old in pairs}
    graph = make_graph(separate)
    sizes = {name: sizes[table] for name, table in by_relation.items()}
    cells = plan_cells(graph, sizes, n_cells, n_cells)
    for cell in range(cells.n_cells):
        eddy = Eddy(separate, options)
        waiting = {
            name: part_of(cells, cell, name, tables[table]).to_batches(max_chunksize=5)
            for name, table in by_relation.items()
        }
        found = []
        while waiting:
            name = rng.choice(sorted(waiting))
            if waiting[name]:
                eddy.push(name, waiting[name].pop(0))
            else:
                eddy.end(name)
                del waiting[name]
            while rng.random() < 0.5 and (rows := eddy.poll()) is not None:
                found.append(rows)
        while (rows := eddy.poll()) is not None:
            found.append(rows)
        assert eddy.is_done
        yield pa.Table.from_batches(found, schema=eddy.output.schema)


@pytest.mark.parametrize(
    "first",
    [*range(0, 240, 60), *(pytest.param(n, marks=pytest.mark.slow) for n in range(240, 960, 60))],
)
def test_left_joins_are_those_of_duckdb(first: int) -> None:
    n_padded = n_whole = 0
    for seed in range(first, first + 60):
        rng = random.Random(f"left joins {seed}")
        tables, text = tables_of(rng), random_text(rng)
        expected = Above(tables).answer(text)
        planned = planned_for(text, tables)
        above = Above(tables)
        for block in planned.blocks:
            options = Options(
                policy=rng.choice(("random", "auto", "lottery")),
                seed=seed,
                batch_rows=rng.choice((1, 2, 7, 1000)),
                threads=rng.choice((1, 1, 2)),
            )
            cells = rng.choice((1, 2, 3, 8))
            parts = list(cells_of(block.query, above.tables, cells, options, rng))
            above.tables[block.name] = pa.concat_tables(parts)
            n_padded += sum(asked.padded for asked in block.query.exists)
        n_whole += bool(planned.blocks) and "LEFT JOIN" not in (planned.above or "")
        found = above.answer(planned.above or f"SELECT * FROM {planned.blocks[-1].name}")
        assert_same_bag(found, expected, text, 11)
    assert n_padded > 30
    assert n_whole > 20


def random_nested_left_join(rng: random.Random) -> str:
    """Groups of one padded table, in the places where a text may have a subquery."""
    left, right, around = rng.choice(("tuw", "twu", "uvt", "vwt", "wtu"))
    own = f"{right}.{OWN[right]}"
    more = rng.choice(("", f" AND {own} > 3", f" AND {right}.s <> {left}.s"))
    from_ = f"{left} LEFT JOIN {right} ON {right}.k = {left}.k{more}"
    where = rng.choice(("", f" WHERE {left}.k < 6"))
    value = rng.choice(
        (f"count({own})", f"sum({own})", f"min({own})", "count(*)", f"max({left}.k)")
    )
    correlated = f"{where or ' WHERE true'} AND {left}.k = o.k"
    other = f"o.{OWN[around]}"
    return rng.choice(
        (
            f"SELECT x.n, count(*) AS c FROM (SELECT {left}.k, {value} AS n FROM {from_}{where} "
            f"GROUP BY {left}.k) AS x GROUP BY x.n",
            f"WITH x AS (SELECT {left}.k, {value} AS n FROM {from_}{where} GROUP BY {left}.k) "
            f"SELECT x.n, o.k, {other} AS y FROM x JOIN {around} o ON o.k = x.k",
            f"SELECT o.k FROM {around} o WHERE {other} > (SELECT {value} FROM {from_}{where})",
            f"SELECT o.k FROM {around} o WHERE {other} > (SELECT {value} FROM {from_}{correlated})",
            f"SELECT o.k, (SELECT {value} FROM {from_}{where}) AS n FROM {around} o",
            f"SELECT o.k, (SELECT {value} FROM {from_}{correlated}) AS n FROM {around} o",
            f"SELECT o.k FROM {around} o WHERE o.k IN (SELECT {value} FROM {from_}{where} "
            f"GROUP BY {left}.k HAVING count({own}) < 3)",
            f"SELECT {left}.k, (SELECT max(o.k) FROM {around} o WHERE o.k = {left}.k) AS m, "
            f"{value} AS n FROM {from_}{where} GROUP BY {left}.k",
        )
    )


@pytest.mark.parametrize("first", range(0, 150, 50))
def test_groups_of_one_padded_table_are_those_of_duckdb(first: int) -> None:
    n_padded = 0
    for seed in range(first, first + 50):
        rng = random.Random(f"nested left joins {seed}")
        tables, text = tables_of(rng), random_nested_left_join(rng)
        above, names = Above(tables), list(tables)
        expected = above.answer(text)
        planned = plan(
            text,
            {name: table.schema for name, table in tables.items()},
            host="spark",
            schema_of=above.schema_of,
            direct=names,
            may_ask=True,
            may_pad=names,
        )
        found = answer(planned, above, rng.choice((1, 2, 3, 8)))
        assert_same_bag(found, expected, text, 11)
        n_padded += sum(asked.padded for block in planned.blocks for asked in block.query.exists)
    assert n_padded > 15


SCHEMAS = {name: pa.schema(columns.items()) for name, columns in (COLUMNS | FIFTH).items()}


@pytest.mark.parametrize(
    "text",
    [
        "SELECT t.x, w.z FROM t LEFT JOIN w ON w.k = t.k",
        "SELECT t.x, count(DISTINCT w.z), count(w.k) FROM t LEFT JOIN w ON w.k = t.k GROUP BY t.x",
        "SELECT t.x, count(w.z) FROM t LEFT JOIN w ON w.k = t.k WHERE w.z > 1 OR t.k = 1 GROUP BY t.x",
        "SELECT t.x, w.z FROM t JOIN u ON t.k = u.k LEFT JOIN w ON w.k = t.k WHERE w.z > 1",
        "SELECT t.x, w.z FROM t JOIN u ON t.k = u.k LEFT JOIN w ON w.k = t.k AND t.x > 3",
        "SELECT t.x, w.z FROM t JOIN u ON t.k = u.k LEFT JOIN w ON w.k < t.k",
        "SELECT t.x, w.z FROM t JOIN u ON t.k = u.k LEFT JOIN w ON w.k = t.k OR w.z = t.x",
        "SELECT a.x, b.x AS y FROM t a JOIN u ON a.k = u.k LEFT JOIN t b ON a.k = b.k",
        "SELECT t.x, w.z FROM w RIGHT JOIN t ON w.k = t.k FULL JOIN u ON u.k = t.k",
        "SELECT t.x FROM t JOIN u ON t.k = u.k LEFT JOIN (w JOIN v ON w.k = v.k) ON w.k = t.k",
        "SELECT t.x FROM t JOIN u ON t.k = u.k LEFT JOIN w ON w.k = t.k "
        "WHERE EXISTS (SELECT 1 FROM w i WHERE i.k = t.x)",
        "SELECT t.x FROM v LEFT JOIN (t JOIN u ON t.k = u.k LEFT JOIN w ON w.k = t.k) ON v.k = t.k",
    ],
)
def test_other_left_joins_run_above(text: str) -> None:
    names = list(SCHEMAS)
    planned = plan(text, SCHEMAS, host="spark", direct=names, may_ask=True, may_pad=names)
    assert not any(asked.padded for block in planned.blocks for asked in block.query.exists)


def test_a_table_that_may_not_pad_stays_above() -> None:
    text = "SELECT t.x, w.z FROM t JOIN u ON t.k = u.k LEFT JOIN w ON w.k = t.k"
    names = list(SCHEMAS)
    for may_pad, direct in (([], names), (["w"], ["t", "u"])):
        planned = plan(text, SCHEMAS, host="spark", direct=direct, may_ask=True, may_pad=may_pad)
        assert "LEFT JOIN" in (planned.above or "")


def padded_query() -> Query:
    text = "SELECT t.x, w.z FROM t JOIN u ON t.k = u.k LEFT JOIN w ON w.k = t.k"
    names = list(SCHEMAS)
    planned = plan(text, SCHEMAS, host="spark", direct=names, may_ask=True, may_pad=names)
    return planned.blocks[0].query


def test_padding_needs_all_rows_in_memory() -> None:
    with pytest.raises(OptionError):
        Eddy(padded_query(), Options(memory="1MB"))


def test_a_source_that_pads_is_the_only_one_of_its_table() -> None:
    query = padded_query()
    sources = tuple(replace(s, table="t") if s.name == "w" else s for s in query.sources)
    with pytest.raises(PlanError, match="only one of its table"):
        make_graph(replace(query, sources=sources))


def test_padding_can_be_explained() -> None:
    explained = explain_query(padded_query())
    assert "pad:w" in explained
    assert "-> result" in explained
