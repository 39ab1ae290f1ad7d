"""The tables a query reads, whatever they came as: DataFrames, sources, Arrow tables, paths.

Every input can be read by Spark (`dataframe`), and those with a `source` also by the tasks
themselves, which is several times faster. Asking for columns and sizes reads schemas and file footers,
never rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from eddies.core.state.columns import normal_type
from eddies.errors import SourceError
from eddies.sources import read
from eddies.sources.inline import InlineSource, delivered_table, frame_of
from eddies.sources.reachable import AccessSource
from eddies.sources.source import Source, is_source
from eddies.spark.frame_files import files_of
from eddies.spark.frame_plan import NO_FACTS, PlanFacts, plan_facts

if TYPE_CHECKING:
    from eddies.sources.streams.base import Stream

__all__ = ["Input", "frame_input", "make_inputs", "normal_schema", "quoted", "row_bytes"]

INLINE_BYTES = 4 << 20  # Arrow tables up to this size travel with the task
_STATISTICS = re.compile(
    r"Statistics\(sizeInBytes=([0-9.E+]+) ([KMGTPE]?i?B)(?:, rowCount=([0-9.E+]+))?"
)
_WATERMARK = "spark.watermarkDelayMs"  # as Spark writes it into the metadata of a column
_TEXT_BYTES = 20  # guess for a value of unknown width
_KEY_BYTES = 24  # of a key that is broadcast


@dataclass(frozen=True, slots=True)
class Input:
    """One table: its columns as the eddy keeps them, and the ways to read it."""

    name: str
    schema: pa.Schema
    source: Source | None
    frame: DataFrame | None
    n_rows: int | None
    stream: Stream | None = None
    rows_per_epoch: int | None = None
    facts: PlanFacts = NO_FACTS  # of the frame

    @property
    def is_streaming(self) -> bool:
        """Whether its rows arrive over time."""
        return self.stream is not None or (self.frame is not None and self.frame.isStreaming)

    def dataframe(self, spark: SparkSession) -> DataFrame:
        """The table as Spark reads it."""
        if self.frame is not None:
            return self.frame
        if self.stream is not None:
            from eddies.spark.stream_source import rows_frame

            return rows_frame(spark, self.name, self.stream, self.rows_per_epoch)
        assert self.source is not None, "an input has a frame or a source"
        return self.source.dataframe(spark)

    @property
    def watermark(self) -> tuple[str, int] | None:
        """The column that `withWatermark` of a streaming DataFrame names, and its delay in
        microseconds; None if there is no such column, or more than one.
        """
        fields = [] if self.frame is None else self.frame.schema.fields
        marked = [field for field in fields if _WATERMARK in (field.metadata or {})]
        if len(marked) != 1:
            return None
        return marked[0].name, 1000 * int(marked[0].metadata[_WATERMARK])

    @property
    def label(self) -> str:
        """What it is, for people."""
        if self.source is None:
            return "DataFrame"
        return self.source.label if self.frame is None else f"DataFrame of {self.source.label}"


def make_inputs(tables: Mapping[str, object], spark: SparkSession) -> dict[str, Input]:
    """Open `tables`: footers and schemas are read, nothing else."""
    return {name: _input(name, table, spark) for name, table in tables.items()}


def _input(name: str, table: object, spark: SparkSession) -> Input:
    if isinstance(table, DataFrame):
        return frame_input(name, table)
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if isinstance(table, pa.Table):
        if table.nbytes > INLINE_BYTES:
            given = delivered_table(table)
            frame = frame_of(given, spark)
            return Input(name, normal_schema(given.schema), None, frame, given.num_rows)
        table = InlineSource(table)
    elif isinstance(table, str):
        table = read.path(table)
    if not is_source(table):
        raise SourceError(
            f"table {name!r} is a {type(table).__name__}; expected a pyspark DataFrame, a source of "
            "eddies.read, a pyarrow Table, or a path"
        )
    if not table.is_direct:
        if isinstance(table, AccessSource) and (table.indexes or len(table.scans) > 1):
            raise SourceError(
                f"table {name!r} can only be read by Spark itself, which knows nothing of its mirrors "
                "and indexes; leave them out, or give paths that tasks can read"
            )
        return frame_input(name, table.dataframe(spark))
    return Input(name, normal_schema(table.schema), table, None, table.n_rows)


def frame_input(name: str, frame: DataFrame, *, is_computed: bool = False) -> Input:
    """A table that is a DataFrame. Of one that eddies compute, Spark knows no size: it is not asked."""
    schema = normal_schema(to_arrow_schema(frame.schema, timezone="UTC"))
    source = None if is_computed else files_of(frame, schema)
    if source is not None:
        facts = PlanFacts(is_repeatable=True, most_rows=source.n_rows)
        return Input(name, schema, source, frame, source.n_rows, facts=facts)
    if is_computed or frame.isStreaming:
        return Input(name, schema, None, frame, None)
    facts = plan_facts(frame)
    n_rows = facts.most_rows
    if n_rows is None:
        n_rows = _estimated_rows(frame, schema)
    return Input(name, schema, None, frame, n_rows, facts=replace(facts, most_rows=n_rows))


def normal_schema(schema: pa.Schema) -> pa.Schema:
    """The columns as eddies keep them."""
    return pa.schema([field.with_type(normal_type(field.type)) for field in schema])


def _estimated_rows(frame: DataFrame, schema: pa.Schema) -> int | None:
    """What Spark's own statistics say: a row count, or bytes divided by the width of a row."""
    printed = StringIO()
    with redirect_stdout(printed):
        frame.explain(mode="cost")
    found = _STATISTICS.search(printed.getvalue())
    if found is None:
        return None
    if found[3]:
        return int(float(found[3]))
    unit = "BKMGTPE".index(found[2][0])
    if unit >= 5:
        return None  # Spark's way to say that it does not know
    return int(float(found[1]) * 1024**unit / (8 + row_bytes(schema, schema.names)))


def most_keys(frame: DataFrame) -> int:
    """How many keys may be collected and broadcast: they take an eighth of the driver's memory."""
    memory = frame.sparkSession.conf.get("spark.driver.memory", None) or "1g"
    found = re.fullmatch(r"(\d+)([kmgt]?)b?", memory.strip().lower())
    n_bytes = int(found[1]) << 10 * " kmgt".index(found[2] or " ") if found else 1 << 30
    return n_bytes // (8 * _KEY_BYTES)


def row_bytes(schema: pa.Schema, columns: list[str]) -> float:
    """Roughly what a row of `columns` takes in memory."""
    widths = []
    for name in columns:
        type_ = schema.field(name).type
        try:
            widths.append(type_.bit_width / 8)
        except ValueError:
            widths.append(_TEXT_BYTES)
    return float(sum(widths))


def quoted(column: str) -> str:
    """A column name as Spark SQL reads it."""
    return "`" + column.replace("`", "``") + "`"
