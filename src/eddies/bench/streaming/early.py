"""How early results of slow sources come, beside how early they could.

Four sources take a minute to arrive, each in its own way: steadily, late, in bursts. A result exists
from the moment at which the last of its parts is due, which follows from the schedules and the data:
DuckDB joins the tables with those moments. An online query delivers it some time later. Moments are
counted from the one at which the streams began, which is in the query's offsets.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import SparkSession

import eddies
from eddies.bench.answers import difference, plain_rows
from eddies.core.options import Options
from eddies.sources.streams.simulated import SimulatedSource

__all__ = ["Early", "early_sources", "early_tables", "possible", "run_early"]

ROWS = {"a": 40_000, "b": 20_000, "c": 30_000, "d": 20_000}
SEED = 3
QUERY = """
    SELECT a.id, b.v AS b, c.v AS c, d.v AS d FROM a, b, c, d
    WHERE a.x = b.x AND a.y = c.y AND c.z = d.z
"""
POSSIBLE_SHARE = 0.75


@dataclass(frozen=True, slots=True)
class Early:
    """Moments in seconds after the streams began, one a result, in order."""

    possible_s: npt.NDArray[np.float64]
    delivered_s: npt.NDArray[np.float64]
    wrong: str | None

    @property
    def first_late_s(self) -> float:
        """Between the moment at which the first result exists and the first delivery."""
        return float(self.delivered_s[0] - self.possible_s[0])

    @property
    def three_quarters_s(self) -> float:
        """When three quarters of the results exist."""
        return float(np.quantile(self.possible_s, POSSIBLE_SHARE, method="higher"))

    @property
    def share_delivered(self) -> float:
        """Of all results, by then."""
        return float(np.mean(self.delivered_s <= self.three_quarters_s))

    @property
    def median_late_s(self) -> float:
        """The n-th delivery comes after the n-th result exists by so much, in the median."""
        return float(np.median(self.delivered_s - self.possible_s))


def early_tables() -> dict[str, pa.Table]:
    """A chain of joins in which every row finds about one partner in each neighbour."""
    rng = np.random.default_rng(SEED)

    def column(name: str, distinct: int) -> pa.Array:
        return pa.array(rng.integers(0, distinct, ROWS[name]), pa.int64())

    values = {name: pa.array(np.arange(n), pa.int64()) for name, n in ROWS.items()}
    return {
        "a": pa.table({"id": values["a"], "x": column("a", 20_000), "y": column("a", 30_000)}),
        "b": pa.table({"x": column("b", 20_000), "v": values["b"]}),
        "c": pa.table({"y": column("c", 30_000), "z": column("c", 20_000), "v": values["c"]}),
        "d": pa.table({"z": column("d", 20_000), "v": values["d"]}),
    }


def early_sources(tables: dict[str, pa.Table], arrival_s: float) -> dict[str, SimulatedSource]:
    """The tables on schedules that take `arrival_s`."""
    rate = {name: n / arrival_s for name, n in ROWS.items()}
    n_bursts = 20
    return {
        "a": eddies.read.simulated(tables["a"], rows_per_s=rate["a"]),
        "b": eddies.read.simulated(
            tables["b"], rows_per_s=rate["b"] / 0.9, delay_s=0.1 * arrival_s
        ),
        "c": eddies.read.simulated(
            tables["c"],
            rows_per_s=rate["c"] * 2,
            burst_rows=ROWS["c"] // n_bursts,
            pause_s=arrival_s / 2 / n_bursts,
            seed=SEED,
        ),
        "d": eddies.read.simulated(tables["d"], rows_per_s=rate["d"]),
    }


def run_early(
    spark: SparkSession, arrival_s: float, on_look: Callable[[str], None] = lambda text: None
) -> Early:
    """Run the query and compare moments and rows."""
    tables = early_tables()
    sources = early_sources(tables, arrival_s)
    possible_s, right = possible(tables, sources)
    moments: list[npt.NDArray[np.float64]] = []
    batches: list[pa.RecordBatch] = []
    with tempfile.TemporaryDirectory(prefix="eddies-bench-streaming-") as folder:
        options = Options(checkpoint=folder)
        with eddies.online(QUERY, dict(sources), spark=spark, options=options) as query:
            n_rows = 0
            for batch in query:
                moments.append(np.full(batch.num_rows, time.time()))
                batches.append(batch)
                n_rows += batch.num_rows
                on_look(f"{n_rows:,} of {len(possible_s):,} results")
            found = pa.Table.from_batches(batches, query.schema)
        began_s = _began_s(Path(folder))
    wrong = difference(plain_rows(found), plain_rows(right))
    return Early(possible_s, np.concatenate(moments) - began_s, wrong)


def possible(
    tables: dict[str, pa.Table], sources: dict[str, SimulatedSource]
) -> tuple[npt.NDArray[np.float64], pa.Table]:
    """The moments at which results exist, in order, and the results."""
    with duckdb.connect() as connection:
        for name, table in tables.items():
            schedule = sources[name].schedule
            due_s = [schedule.due_s(n) for n in range(1, table.num_rows + 1)]
            connection.register(name, table.append_column("due_s", pa.array(due_s)))
        joined = QUERY[QUERY.index("FROM") :]
        latest = (
            f"SELECT greatest(a.due_s, b.due_s, c.due_s, d.due_s) AS exists_s {joined} ORDER BY 1"
        )
        moments = connection.sql(latest).to_arrow_table()["exists_s"].to_numpy()
        return moments, connection.sql(QUERY).to_arrow_table()


def _began_s(checkpoint: Path) -> float:
    """The moment at which the streams began, which every offset of theirs tells."""
    last = max(int(path.name) for path in (checkpoint / "offsets").iterdir() if path.name.isdigit())
    for line in (checkpoint / "offsets" / str(last)).read_text().splitlines():
        if line.startswith("{") and "streams" in (told := json.loads(line)):
            return min(float(offset["began_ms"]) / 1000 for offset in told["streams"].values())
    raise AssertionError("the offsets of the query tell when its streams began")
