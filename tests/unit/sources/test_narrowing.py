"""Row groups of which few rows are wanted: the rows are the same, whoever decodes them."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import eddies
from eddies.core.eddy import Eddy
from eddies.core.expr import Call, Column, Expr, Literal
from eddies.core.partners import PartnerFilter
from eddies.core.query import Equality, Output, Query, Source
from eddies.errors import SourceError
from eddies.sources.pages import PageColumn
from eddies.sources.row_groups import ParquetSplit
from tests.support.bag import assert_same_bag

N_ROWS = 60_000
GROUP_ROWS = 20_000
TYPES = {
    "id": pa.int64(),
    "k": pa.int64(),
    "name": pa.string(),
    "price": pa.decimal128(15, 2),
    "note": pa.string(),
    "word": pa.string(),
    "is_odd": pa.bool_(),
}


def sample() -> pa.Table:
    rng = np.random.default_rng(3)
    keys = rng.integers(0, 2000, N_ROWS)
    prices = rng.integers(0, 10**9, N_ROWS)
    return pa.table(
        {
            "id": np.arange(N_ROWS),
            "k": pa.array(keys, mask=rng.random(N_ROWS) < 0.05),
            "name": pa.array([f"name {k % 300}" for k in keys]),
            "price": pa.array([Decimal(int(p)).scaleb(-2) for p in prices], pa.decimal128(15, 2)),
            "note": pa.array([f"note {i * 7}" for i in range(N_ROWS)], mask=keys % 9 == 0),
            "word": pa.array(["red", "green", "blue", None]).take(pa.array(keys % 4)),
            "is_odd": keys % 2 == 1,
        }
    )


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("narrowing") / "t.parquet"
    parquet.write_table(sample(), path, row_group_size=GROUP_ROWS, data_page_size=10_000)
    return path


def partners(column: str, words: list[object]) -> PartnerFilter:
    """Of a relation that has ended with these keys."""
    schema = pa.schema([(column, TYPES[column])])
    key = TYPES[column]
    query = Query(
        sources=(Source("few", "few", schema), Source("t", "t", schema)),
        equalities=(Equality(Column("few", column), Column("t", column), key),),
        output=(Output("n", Column("t", column), key),),
    )
    eddy = Eddy(query)
    eddy.push("few", pa.record_batch([pa.array(words, key)], schema=schema))
    eddy.end("few")
    found = eddy.partner_filter("t", {"few": len(words), "t": N_ROWS})
    assert found is not None
    return found


def splits_of(path: Path) -> Iterator[ParquetSplit]:
    for split in eddies.read.parquet(path).splits():
        assert isinstance(split, ParquetSplit)
        yield split


def read(
    path: Path,
    columns: list[str],
    where: tuple[Expr, ...] = (),
    left: PartnerFilter | None = None,
    dictionaries: bool = False,
) -> pa.Table:
    schema = pa.schema([(name, TYPES[name]) for name in columns])
    batches = [
        batch
        for split in splits_of(path)
        for batch in split.read(columns, where, partners=left, dictionaries=dictionaries)
    ]
    if not dictionaries:
        assert all(batch.schema.types == schema.types for batch in batches)
    return pa.Table.from_batches([batch.cast(schema) for batch in batches], schema)


def below(name: str, limit: int) -> Expr:
    return Call("lt", (Column("any", name), Literal(limit, TYPES[name])))


COLUMNS = ["note", "id", "price", "name", "word", "k", "is_odd"]


@pytest.fixture
def n_by_rows(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of columns, each time some of their rows are read out of pages."""
    found: list[str] = []
    for way in ("rows", "coded"):
        usual = getattr(PageColumn, way)

        def counted(self: PageColumn, rows: object, usual: object = usual) -> object:
            found.append(self._name)
            return usual(self, rows)  # type: ignore[operator]

        monkeypatch.setattr(PageColumn, way, counted)
    return found


@pytest.mark.parametrize("dictionaries", [False, True])
@pytest.mark.parametrize("limit", [0, 1, 30, 700, 1999, 5000])
def test_rows_that_pass_are_those_duckdb_reads(
    path: Path, limit: int, dictionaries: bool, n_by_rows: list[str]
) -> None:
    found = read(path, COLUMNS, (below("k", limit),), dictionaries=dictionaries)
    wanted = f"SELECT {', '.join(COLUMNS)} FROM '{path}'"
    if limit < 1800:
        assert_same_bag(found, duckdb.sql(f"{wanted} WHERE k < {limit}").to_arrow_table())
        assert bool(n_by_rows) == (limit > 0)
        assert "is_odd" not in n_by_rows
    else:  # nearly all pass, so the rows are left to those who filter again
        assert_same_bag(found, duckdb.sql(wanted).to_arrow_table())
        assert not n_by_rows


@pytest.mark.parametrize("column", ["k", "name"])
@pytest.mark.parametrize("where", [(), (below("id", 33_333),)])
def test_rows_with_partners_are_left(
    path: Path, column: str, where: tuple[Expr, ...], n_by_rows: list[str]
) -> None:
    words: list[object] = [1, 5, 99] if column == "k" else ["name 5", "name 99"]
    found = read(path, COLUMNS, where, partners(column, words))
    condition = f"{column} IN ({', '.join(map(repr, words))})"
    if where:
        condition += " AND id < 33333"
    expected = duckdb.sql(f"SELECT {', '.join(COLUMNS)} FROM '{path}' WHERE {condition}")
    # A Bloom filter may let others through: those are not counted here.
    kept = found.filter(pa.compute.is_in(found[column], pa.array(words, TYPES[column])))
    assert_same_bag(kept, expected.to_arrow_table())
    assert found.num_rows < N_ROWS / 20
    assert column in n_by_rows


def test_small_row_groups_are_decoded_as_a_whole(tmp_path: Path, n_by_rows: list[str]) -> None:
    path = tmp_path / "small.parquet"
    parquet.write_table(sample(), path, row_group_size=2000)
    found = read(path, ["id", "note"], (below("k", 30),))
    assert_same_bag(
        found, duckdb.sql(f"SELECT id, note FROM '{path}' WHERE k < 30").to_arrow_table()
    )
    assert not n_by_rows


def test_a_damaged_page_is_named_with_its_file(path: Path, tmp_path: Path) -> None:
    content = bytearray(path.read_bytes())
    group = parquet.read_metadata(path).row_group(0)
    price = group.column(parquet.read_schema(path).names.index("price"))
    start = price.data_page_offset
    content[start + 100 : start + 4000] = b"\xff" * 3900
    damaged = tmp_path / "damaged.parquet"
    damaged.write_bytes(content)
    with pytest.raises(SourceError, match=r"damaged\.parquet cannot be read"):
        read(damaged, ["price"], (below("k", 30),))
