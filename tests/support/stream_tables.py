"""Four tables for streaming joins, their query, and the answer DuckDB gives."""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa

__all__ = ["STREAM_QUERY", "expected_answer", "stream_tables"]

STREAM_QUERY = """
    SELECT c.city, o.id AS order_id, i.price, s.name AS shop
    FROM orders o, customers c, items i, shops s
    WHERE o.customer = c.id AND i.order_id = o.id AND o.shop = s.id AND i.price > 10
"""


def stream_tables(n_orders: int, seed: int = 0) -> dict[str, pa.Table]:
    """Orders with customers, items and shops; some keys are NULL, some dangle, some repeat."""
    rng = np.random.default_rng(seed)
    n_customers, n_shops = max(2, n_orders // 4), 20
    customers = rng.integers(0, n_customers + 5, n_orders)
    null = rng.random(n_orders) < 0.02
    cities = np.array(["Lima", "Oslo", "Rome", "Kyiv"])
    return {
        "orders": pa.table(
            {
                "id": pa.array(np.arange(n_orders), pa.int64()),
                "customer": pa.array(customers, pa.int64(), mask=null),
                "shop": pa.array(rng.integers(0, n_shops, n_orders), pa.int32()),
            }
        ),
        "customers": pa.table(
            {
                "id": pa.array(np.arange(n_customers), pa.int64()),
                "city": pa.array(cities[rng.integers(0, 4, n_customers)]),
            }
        ),
        "items": pa.table(
            {
                "order_id": pa.array(rng.integers(0, n_orders + 9, 2 * n_orders), pa.int64()),
                "price": pa.array(rng.integers(0, 100, 2 * n_orders), pa.int32()),
            }
        ),
        "shops": pa.table(
            {
                "id": pa.array(np.arange(n_shops), pa.int32()),
                "name": pa.array([f"shop {i % 7}" for i in range(n_shops)]),
            }
        ),
    }


def expected_answer(tables: dict[str, pa.Table], query: str = STREAM_QUERY) -> pa.Table:
    """What DuckDB says."""
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        return connection.sql(query).to_arrow_table()
