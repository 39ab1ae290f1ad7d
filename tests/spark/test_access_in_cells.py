"""Look-ups and mirrors inside the tasks of Spark: every cell asks for itself, the answer stays."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

import eddies
from eddies.errors import OptionError, UnreachableError
from tests.support.bag import assert_same_bag
from tests.support.driving import Oracle
from tests.support.sales import SALES_QUERY, sales_tables

N_USERS, N_ITEMS = 300, 80
TEXT = SALES_QUERY
CYCLE = """
SELECT s.id, u.country, v.amount FROM sales s, users u, visits v
WHERE s.user = u.uid AND u.uid = v.uid AND v.item = s.item
"""


def visits() -> pa.Table:
    rng = np.random.default_rng(1)
    return pa.table(
        {
            "uid": rng.integers(0, N_USERS, 3000),
            "item": rng.integers(0, N_ITEMS, 3000),
            "amount": np.arange(3000),
        }
    )


TABLES = sales_tables(4000, N_USERS, N_ITEMS, null_share=0.05) | {"visits": visits()}


class Asked:
    """Look-ups in a table by one column. Writes which process asked for which keys, and when."""

    def __init__(
        self, table: pa.Table, column: str, log: Path | None = None, seconds: float = 0.0
    ) -> None:
        self._table, self._column, self._log, self._seconds = table, column, log, seconds

    def __call__(self, keys: pa.RecordBatch) -> pa.Table:
        began_s = time.time()
        time.sleep(self._seconds)
        found = self._table.filter(pc.is_in(self._table.column(self._column), keys.column(0)))
        if self._log is not None:
            name = f"{os.getpid()}-{threading.get_ident()}"
            told = [os.getpid(), began_s, time.time(), *keys.column(0).to_pylist()]
            with (self._log / name).open("a") as file:
                file.write(" ".join(map(str, told)) + "\n")
        return found


@dataclass(frozen=True)
class Call:
    process: int
    began_s: float
    ended_s: float
    keys: tuple[int, ...]

    @classmethod
    def read(cls, line: str) -> Call:
        process, began, ended, *keys = line.split()
        return cls(int(process), float(began), float(ended), tuple(map(int, keys)))


def calls_by_process(log: Path) -> dict[int, list[Call]]:
    found: dict[int, list[Call]] = {}
    for file in log.iterdir():
        for call in map(Call.read, file.read_text().splitlines()):
            found.setdefault(call.process, []).append(call)
    return found


def busy(calls: list[Call], concurrency: int) -> float:
    """The share of the allowed calls that are under way, averaged over time."""
    span_s = max(call.ended_s for call in calls) - min(call.began_s for call in calls)
    return sum(call.ended_s - call.began_s for call in calls) / (concurrency * span_s)


def looked_up(name: str, column: str, **settings: object) -> object:
    table = TABLES[name]
    return eddies.read.lookup(table.schema, on=[column], lookup=Asked(table, column), **settings)


@pytest.fixture
def sales(tmp_path: Path) -> object:
    parquet.write_table(TABLES["sales"], tmp_path / "sales.parquet", row_group_size=500)
    return eddies.read.parquet(str(tmp_path / "sales.parquet"))


@pytest.mark.parametrize("cells", [1, 2, 3, 8])
def test_sources_without_a_scan(spark: SparkSession, sales: object, cells: int) -> None:
    tables = {
        "sales": sales,
        "users": looked_up("users", "uid"),
        "items": eddies.read.arrow(TABLES["items"]).index(
            on=["iid"], lookup=Asked(TABLES["items"], "iid")
        ),
    }
    options = eddies.Options(cells=cells)
    found = eddies.sql(TEXT, tables, spark=spark, options=options).toArrow()
    assert_same_bag(found, Oracle().answer(TEXT, TABLES), f"{cells} cells")


@pytest.mark.parametrize("cells", [1, 2, 3, 8])
def test_a_cycle_over_hashed_look_ups(spark: SparkSession, cells: int) -> None:
    """Every relation is hashed on several classes; what is looked up is filtered like the rest."""
    frame = spark.createDataFrame(TABLES["sales"])
    tables = {
        "sales": frame,
        "users": looked_up("users", "uid").keyed("uid"),  # type: ignore[attr-defined]
        "visits": eddies.read.arrow(TABLES["visits"]).index(
            on=["uid"], lookup=Asked(TABLES["visits"], "uid"), keys_per_lookup=20
        ),
    }
    options = eddies.Options(cells=cells)
    found = eddies.sql(CYCLE, tables, spark=spark, options=options).toArrow()
    assert_same_bag(found, Oracle().answer(CYCLE, TABLES), f"{cells} cells")


def test_mirrors_and_indexes_under_an_aggregate(spark: SparkSession, sales: object) -> None:
    text = """
    SELECT u.country, count(*) AS n, sum(s.price) AS total FROM sales s, users u
    WHERE s.user = u.uid GROUP BY u.country
    """
    backwards = TABLES["users"].take(pa.array(range(N_USERS - 1, -1, -1)))
    mirrored = eddies.read.arrow(TABLES["users"]).mirror(eddies.read.arrow(backwards))
    tables = {
        "sales": sales,
        "users": mirrored.index(on=["uid"], lookup=Asked(TABLES["users"], "uid")),
    }
    found = eddies.sql(text, tables, spark=spark).toArrow()
    assert_same_bag(found, Oracle().answer(text, TABLES))


def test_what_cannot_be_reached_is_refused_before_anything_runs(
    spark: SparkSession, sales: object
) -> None:
    tables = {"sales": sales, "users": looked_up("users", "country")}
    text = "SELECT s.id, u.country FROM sales s, users u WHERE s.user = u.uid"
    with pytest.raises(UnreachableError, match=r"'u' cannot be reached.*u.country"):
        eddies.sql(text, tables, spark=spark)


def test_explain_names_the_ways(spark: SparkSession, sales: object) -> None:
    tables = {"sales": sales, "users": looked_up("users", "uid"), "items": TABLES["items"]}
    text = eddies.explain(TEXT, tables, spark=spark, analyze=True)
    assert "competing: no scan, index 'by uid'" in text
    assert "routes really taken" in text


class Changed:
    """A look-up whose answer comes in other types than the source has."""

    def __init__(self, table: pa.Table, column: str, types: dict[str, pa.DataType]) -> None:
        self._asked, self._types = Asked(table, column), types

    def __call__(self, keys: pa.RecordBatch) -> pa.Table:
        found = self._asked(keys)
        for name, type_ in self._types.items():
            position = found.schema.get_field_index(name)
            found = found.set_column(position, name, found.column(name).cast(type_))
        return found


@pytest.mark.parametrize("cells", [1, 3, 4])
def test_answers_in_other_types_belong_to_the_same_cells(spark: SparkSession, cells: int) -> None:
    """Both are hashed: on a number that comes back as a float, and a text as another kind of text."""
    n = 2000
    left = pa.table({"k": np.arange(n) % 500, "t": [f"t{i % 7}" for i in range(n)]})
    right = pa.table(
        {"k": np.arange(500), "t": [f"t{i % 7}" for i in range(500)], "v": np.arange(500)}
    )
    types = {"k": pa.float64(), "t": pa.large_string()}
    source = eddies.read.lookup(right.schema, on=["k"], lookup=Changed(right, "k", types))
    text = "SELECT l.k, r.v FROM l, r WHERE l.k = r.k AND l.t = r.t"
    tables = {"l": spark.createDataFrame(left), "r": source}
    found = eddies.sql(text, tables, spark=spark, options=eddies.Options(cells=cells)).toArrow()
    assert_same_bag(found, Oracle().answer(text, {"l": left, "r": right}))


@pytest.mark.parametrize("scanned", [False, True])
def test_a_narrow_key_is_asked_by_a_wide_one(spark: SparkSession, scanned: bool) -> None:
    """`integer` keys, bigint references: some of these fit into no integer and match nothing."""
    narrow = pa.table({"id": pa.array(range(100), pa.int32()), "v": np.arange(100)})
    keys = [*range(0, 200), 1 << 40, (1 << 32) + 5, None]
    wide = pa.table({"k": pa.array(keys, pa.int64())})
    ask = Asked(narrow, "id")
    source = eddies.read.lookup(narrow.schema, on=["id"], lookup=ask, keys_per_lookup=1)
    if scanned:
        source = eddies.read.arrow(narrow).index(on=["id"], lookup=ask)
    text = "SELECT w.k, n.v FROM w, n WHERE w.k = n.id"
    tables = {"w": wide, "n": source}
    found = eddies.sql(text, tables, spark=spark, options=eddies.Options(cells=2)).toArrow()
    assert_same_bag(found, Oracle().answer(text, {"w": wide, "n": narrow}))


def test_a_self_join_of_look_ups(spark: SparkSession) -> None:
    """One source in two roles: a manager is looked up like anybody else."""
    people = pa.table({"id": np.arange(60), "boss": [None, *(i // 3 for i in range(1, 60))]})
    asks = pa.table({"who": np.arange(0, 60, 2)})
    text = """
    SELECT a.who, p.boss, q.boss AS above FROM asks a, people p, people q
    WHERE a.who = p.id AND p.boss = q.id
    """
    source = eddies.read.lookup(people.schema, on=["id"], lookup=Asked(people, "id")).keyed("id")
    found = eddies.sql(text, {"asks": asks, "people": source}, spark=spark).toArrow()
    assert_same_bag(found, Oracle().answer(text, {"asks": asks, "people": people}))


class Flaky:
    """Fails for every key once."""

    def __init__(self, table: pa.Table, column: str) -> None:
        self._asked = Asked(table, column)
        self._seen: set[int] = set()

    def __call__(self, keys: pa.RecordBatch) -> pa.Table:
        new = set(keys.column(0).to_pylist()) - self._seen
        self._seen |= new
        if new:
            raise ConnectionError("try again")
        return self._asked(keys)


def test_look_ups_that_fail_are_repeated_and_told_of(spark: SparkSession, sales: object) -> None:
    users = eddies.read.lookup(
        TABLES["users"].schema,
        on=["uid"],
        lookup=Flaky(TABLES["users"], "uid"),
        keys_per_lookup=100,
        backoff_s=0.01,
    )
    tables = {"sales": sales, "users": users, "items": TABLES["items"]}
    found = eddies.sql(TEXT, tables, spark=spark).toArrow()
    assert_same_bag(found, Oracle().answer(TEXT, TABLES))
    assert "users: look-ups by 'by uid' failed" in eddies.explain(
        TEXT, tables, spark=spark, analyze=True
    )


def test_options_that_exclude_look_ups(spark: SparkSession, sales: object) -> None:
    only = {"sales": sales, "users": looked_up("users", "uid"), "items": TABLES["items"]}
    for options in (eddies.Options(memory="64MB"), eddies.Options(threads=2)):
        with pytest.raises(OptionError, match="'users' has no scan, and look-ups need"):
            eddies.sql(TEXT, only, spark=spark, options=options)
        both = eddies.read.arrow(TABLES["users"]).index(
            on=["uid"], lookup=Asked(TABLES["users"], "uid")
        )
        found = eddies.sql(TEXT, only | {"users": both}, spark=spark, options=options).toArrow()
        assert_same_bag(found, Oracle().answer(TEXT, TABLES))


def test_a_preference_changes_no_answer_and_must_be_about_something(
    spark: SparkSession, sales: object
) -> None:
    tables = {"sales": sales, "users": TABLES["users"], "items": TABLES["items"]}
    options = eddies.Options(prefer="u.country = 'PE'")
    found = eddies.sql(TEXT, tables, spark=spark, options=options).toArrow()
    assert_same_bag(found, Oracle().answer(TEXT, TABLES))
    with pytest.raises(OptionError, match="must be about one source of a join"):
        eddies.sql(TEXT, tables, spark=spark, options=eddies.Options(prefer="x.country = 'PE'"))


def test_three_mirrors_with_indexes(spark: SparkSession, sales: object) -> None:
    users = TABLES["users"]

    def place() -> object:
        return eddies.read.arrow(users).index(on=["uid"], lookup=Asked(users, "uid"))

    mirrored = place().mirror(place()).mirror(place())  # type: ignore[attr-defined]
    tables = {"sales": sales, "users": mirrored, "items": TABLES["items"]}
    found = eddies.sql(TEXT, tables, spark=spark).toArrow()
    assert_same_bag(found, Oracle().answer(TEXT, TABLES))


def test_mirrors_with_a_key_are_divided_by_nothing_else(spark: SparkSession) -> None:
    """Rows that differ in a column they could be divided by meet in every cell: there one counts.

    Divided by `k`, both versions of row 7 would count and find the 250 rows of either key.
    """
    one = pa.table({"id": np.arange(200), "k": np.arange(200) % 20})
    two = one.set_column(1, "k", pa.array((np.arange(200) + (np.arange(200) == 7)) % 20))
    mirrored = eddies.read.arrow(one).mirror(eddies.read.arrow(two)).keyed("id")
    big = pa.table({"k": np.arange(5000) % 20, "v": np.arange(5000)})
    text = "SELECT b.v, m.id FROM b, m WHERE b.k = m.k"
    tables = {"b": spark.createDataFrame(big), "m": mirrored}
    options = eddies.Options(cells=3)
    found = eddies.sql(text, tables, spark=spark, options=options).toArrow()
    seventh = pc.equal(found["id"], 7)
    same = f"{text} AND m.id <> 7"
    assert_same_bag(found.filter(pc.invert(seventh)), Oracle().answer(same, {"b": big, "m": one}))
    keys = np.array(found.filter(seventh)["v"]) % 20
    assert set(keys) <= {7, 8}
    assert len(keys) < 400, "each cell has its rows of one key or of the other"
    said = eddies.explain(text, tables, spark=spark, options=options)
    (line,) = [line for line in said.splitlines() if line.startswith("  m: ")]
    assert "hashed" not in line


def test_an_index_that_nobody_can_ask_changes_nothing(spark: SparkSession, sales: object) -> None:
    """Its table is divided like any other."""
    users = eddies.read.arrow(TABLES["users"]).index(
        on=["country"], lookup=Asked(TABLES["users"], "country")
    )
    tables = {"sales": sales, "users": users, "items": TABLES["items"]}
    assert "competing" not in eddies.explain(TEXT, tables, spark=spark)


def test_a_key_is_asked_once_and_calls_are_kept_full(spark: SparkSession, tmp_path: Path) -> None:
    """100,000 probes with 5,000 distinct keys, 20 ms a call: no key twice in one eddy, and as many
    calls under way as allowed nearly all of the time.
    """
    n, n_keys, concurrency = 100_000, 5_000, 16
    rng = np.random.default_rng(5)
    probes = pa.table({"id": np.arange(n), "k": rng.integers(0, n_keys, n)})
    answers = pa.table({"k": np.arange(n_keys), "v": np.arange(n_keys) * 3})
    path, log = tmp_path / "probes.parquet", tmp_path / "log"
    log.mkdir()
    parquet.write_table(probes, path, row_group_size=10_000)
    index = eddies.read.lookup(
        answers.schema,
        on=["k"],
        lookup=Asked(answers, "k", log, 0.02),
        keys_per_lookup=4,
        concurrency=concurrency,
    )
    text = "SELECT p.id, a.v FROM p, a WHERE p.k = a.k"
    options = eddies.Options(cells=2)
    tables = {"p": eddies.read.parquet(str(path)), "a": index}
    found = eddies.sql(text, tables, spark=spark, options=options).toArrow()
    assert_same_bag(found, Oracle().answer(text, {"p": probes, "a": answers}))
    calls = calls_by_process(log)
    assert len(calls) == 2
    for own in calls.values():
        asked = Counter(key for call in own for key in call.keys)
        assert set(asked.values()) == {1}, "each eddy asks for a key once"
        assert len(asked) <= n_keys
        assert busy(own, concurrency) >= 0.6, "0.98 in a process alone; here two share two cores"
