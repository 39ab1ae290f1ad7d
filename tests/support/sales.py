"""Sales, their users and items: three tables for sources that lie in different places."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

__all__ = ["SALES_QUERY", "sales_tables"]

SALES_QUERY = """
SELECT s.id, u.country, i.title FROM sales s, users u, items i
WHERE s.user = u.uid AND s.item = i.iid AND u.country <> 'XX' AND s.price > 10
"""


def sales_tables(
    n_sales: int, n_users: int, n_items: int, *, null_share: float = 0.0
) -> dict[str, pa.Table]:
    """Some sales are of users that are not there, and of nobody."""
    rng = np.random.default_rng(0)
    users = rng.integers(0, n_users + n_users // 8, n_sales)
    return {
        "sales": pa.table(
            {
                "id": np.arange(n_sales),
                "user": pa.array(users, mask=rng.random(n_sales) < null_share),
                "item": rng.integers(0, n_items, n_sales),
                "price": rng.integers(0, 100, n_sales),
            }
        ),
        "users": pa.table(
            {
                "uid": np.arange(n_users),
                "country": [("PE", "DE", "XX")[i % 3] for i in range(n_users)],
            }
        ),
        "items": pa.table(
            {"iid": np.arange(n_items), "title": [f"item {i}" for i in range(n_items)]}
        ),
    }
