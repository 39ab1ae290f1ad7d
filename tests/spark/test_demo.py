"""The demo: the README's first command must tell the truth and end well."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from eddies.demo import main
from eddies.demo.screen import N_STEPS, Trace
from eddies.demo.star import DIMENSIONS, FLIP_AT, make_star
from eddies.errors import OptionError

BATCH_SETTING = "spark.sql.execution.arrow.maxRecordsPerBatch"


def test_all_answers_agree_and_fewer_probes_are_needed(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    before = spark.conf.get(BATCH_SETTING)
    try:
        code = main(n_rows=300_001, n_partitions=2, seed=3)
    finally:
        spark.conf.set(BATCH_SETTING, before)
    shown = " ".join(capsys.readouterr().out.split())
    assert code == 0, shown
    assert "All three answers are the same bag of rows" in shown
    assert "300,000 of 300,000 sales in" in shown
    adaptive, fixed = (float(found) for found in re.findall(r"(\d\.\d\d) a sale", shown))
    assert adaptive < 0.9 * fixed


def test_hit_rates_flip_where_the_docstring_says(spark: SparkSession) -> None:
    n_rows, n_partitions = 20_000, 2
    sales = make_star(spark, n_rows, n_partitions, seed=1)["sales"].toArrow().to_pylist()
    half = n_rows // n_partitions
    before = [sale for sale in sales if sale["sale_id"] % half < FLIP_AT * half]
    after = [sale for sale in sales if sale["sale_id"] % half >= FLIP_AT * half]
    for dimension in DIMENSIONS:
        for part, rate in ((before, dimension.hit_rate_before), (after, dimension.hit_rate_after)):
            n_wanted = sum(sale[dimension.key] < dimension.n_wanted for sale in part)
            assert n_wanted / len(part) == pytest.approx(rate, abs=0.03)


def test_a_partition_without_rows_is_refused() -> None:
    with pytest.raises(OptionError, match="at least one row in each partition"):
        main(n_rows=1, n_partitions=2)


def test_trace_reads_each_complete_line_once(tmp_path: Path) -> None:
    def line(position: float, n_results: int, at: float) -> str:
        told = {"at": at, "position": position, "n_sales": 10, "n_results": n_results}
        return json.dumps(told | {"n_probes": 20, "first_probes": {"stores": 10}}) + "\n"

    path = tmp_path / "0.jsonl"
    trace = Trace()
    half_line = line(1.0, 5, 102.0)
    path.write_text(line(0.0, 0, 100.0) + line(0.25, 3, 101.0) + half_line[:9])
    trace.read(tmp_path)
    trace.read(tmp_path)
    assert (trace.n_sales, trace.n_results, trace.first_result_at) == (20, 3, 101.0)
    with path.open("a") as file:
        file.write(half_line[9:])
    trace.read(tmp_path)
    assert (trace.n_sales, trace.n_probes, trace.n_results) == (30, 60, 8)
    filled = [step for step in range(N_STEPS) if trace.first_probes[step]]
    assert filled == [0, 2, N_STEPS - 1]
