"""Queries over sources and paths in the local host, against DuckDB over the same files."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import eddies
from eddies.core.options import Options
from eddies.errors import SourceError
from eddies.hosts import local
from eddies.sources.arrivals import SplitArrivals
from eddies.sources.row_groups import ParquetSplit
from tests.support.bag import assert_same_bag


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    rng = np.random.default_rng(7)
    n_rows = 6000
    orders = pa.table(
        {
            "id": np.arange(n_rows),
            "customer": rng.integers(0, 120, n_rows),
            "status": pa.array(["new", "paid", "sent"]).take(pa.array(rng.integers(0, 3, n_rows))),
            "price": pa.array(rng.integers(0, 10_000, n_rows), pa.uint32()),
        }
    )
    parquet.write_table(orders, tmp_path / "orders.parquet", row_group_size=1000)
    lines = [f"{i},{'' if i % 10 == 0 else f'name {i}'},{i % 4}" for i in range(100)]
    (tmp_path / "customers.csv").write_text("\n".join(["id,name,region", *lines]))
    (tmp_path / "regions.json").write_text(
        "".join(f'{{"id": {i}, "r": "r{i}"}}\n' for i in range(3))
    )
    return tmp_path


QUERIES = (
    "SELECT o.id, c.name, r.r FROM orders o, customers c, regions r "
    "WHERE o.customer = c.id AND c.region = r.id AND o.status = 'paid' AND o.id < 1800",
    "SELECT a.id, b.id AS other FROM orders a JOIN orders b ON a.id = b.id + 1 "
    "WHERE a.id BETWEEN 100 AND 200 AND b.status <> 'sent'",
    "SELECT count(*) AS n FROM orders",
    "SELECT o.price, c.name FROM orders o JOIN customers c ON o.customer = c.id WHERE c.name IS NULL",
)


@pytest.mark.parametrize("as_paths", [True, False])
@pytest.mark.parametrize("query", QUERIES)
def test_answers_are_duckdbs(shop: Path, query: str, as_paths: bool) -> None:
    files = {
        "orders": shop / "orders.parquet",
        "customers": shop / "customers.csv",
        "regions": shop / "regions.json",
    }
    tables: dict[str, object] = {
        name: str(path) if as_paths else eddies.read.path(path) for name, path in files.items()
    }
    found = local.sql(query, tables, Options(batch_rows=700))
    with duckdb.connect() as connection:
        for name, path in files.items():
            connection.execute(f"CREATE VIEW {name} AS FROM '{path}'")
        expected = connection.sql(query).to_arrow_table()
    assert expected.num_rows > 0
    assert_same_bag(found, expected, query)


def test_only_needed_columns_and_row_groups_are_read(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[tuple[int, tuple[str, ...]]] = []
    original = ParquetSplit.read

    def recorded(self, columns, *rest):  # type: ignore[no-untyped-def]
        read.append((self.row_group, tuple(columns)))
        return original(self, columns, *rest)

    monkeypatch.setattr(ParquetSplit, "read", recorded)
    orders = eddies.read.parquet(shop / "orders.parquet")
    rows = local.sql("SELECT o.price FROM orders o WHERE o.id < 1800", {"orders": orders})
    assert rows.num_rows == 1800
    assert [group for group, _ in read] == [0, 1]
    assert all(set(columns) == {"price", "id"} for _, columns in read)


def test_a_path_that_does_not_exist_is_an_error_before_anything_runs(shop: Path) -> None:
    with pytest.raises(SourceError, match=r"there is no .*gone.parquet"):
        local.sql("SELECT * FROM t", {"t": str(shop / "gone.parquet")})


def test_arrivals_of_splits_end(shop: Path) -> None:
    arrivals = SplitArrivals(eddies.read.parquet(shop / "orders.parquet"), 400)
    n_rows = 0
    while arrivals.due_ns() is not None:
        n_rows += arrivals.take().num_rows
    assert n_rows == arrivals.n_rows == 6000
