"""Random SQL texts, planned by the front end and run by the local host, against DuckDB."""

from __future__ import annotations

import random

import pytest

from eddies.hosts import local
from tests.support.bag import assert_same_bag
from tests.support.driving import Oracle, random_options
from tests.support.random_queries import make_case

CHUNK = 60


@pytest.mark.parametrize("chunk", range(6))
def test_random_sql_texts(chunk: int) -> None:
    oracle = Oracle()
    for seed in range(800_000 + chunk * CHUNK, 800_000 + (chunk + 1) * CHUNK):
        case, expected = oracle.bounded(make_case(seed, functions=False))
        rng = random.Random(f"sql {seed}")
        options = random_options(rng)
        found = local.sql(case.sql, case.tables, options, interleave=rng.random() < 0.5)
        assert found.column_names == expected.column_names, case
        assert_same_bag(found, expected, case)
