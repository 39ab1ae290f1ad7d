"""One block of a streaming query: packed streams of its relations, exchanged, joined by epochs.

Relations that stream come as blobs: a streaming DataFrame is packed by Spark (`exchange`), a source of
our own packs itself (`stream_source`). Relations that do not stream are read by the cells themselves
when the query begins. Tasks cannot read a batch DataFrame, so it is saved beside the state first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from pyarrow import fs
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from eddies.core.options import Options
from eddies.core.query import Query
from eddies.errors import OptionError, UnsupportedError
from eddies.sources import read
from eddies.spark.block import BlockPlan
from eddies.spark.cells import CellPlan
from eddies.spark.exchange import PACKED, make_pack
from eddies.spark.inputs import Input
from eddies.spark.stopped import dismiss_when_stopped
from eddies.spark.stream_task import StreamTask
from eddies.sql import Block
from eddies.streaming.cell import CellSpec
from eddies.streaming.folder import open_folder
from eddies.streaming.plan_file import PlanFile, fingerprint
from eddies.streaming.windows import (
    RowWindow,
    TimeWindow,
    Window,
    WindowedTable,
    check_names,
    choose_windows,
    with_windows,
)

__all__ = [
    "check_streaming",
    "check_windows",
    "saved",
    "state_folder",
    "stored_cells",
    "stream_dataframe",
    "windowed",
]


def check_streaming(options: Options) -> None:
    """Raise if `options` do not suit a streaming query."""
    if options.checkpoint is None:
        raise OptionError(
            "a streaming query keeps its state in its checkpoint: give Options(checkpoint=DIR), and "
            "the same DIR as checkpointLocation of writeStream"
        )
    if options.state not in ("auto", "stems"):
        raise OptionError(
            f"a streaming query keeps its state in SteMs, from which any other can be made; "
            f"Options(state={options.state!r}) is for batch queries"
        )
    for name in ("prefer", "partial"):
        if getattr(options, name):
            raise OptionError(
                f"Options({name}=...) is for queries whose sources are read, not for streaming ones"
            )


def check_windows(options: Options, is_streaming: bool, blocks: Iterable[Block]) -> None:
    """Raise if there are windows where nothing streams, or for sources that there are not."""
    if options.window and not is_streaming:
        raise OptionError(
            "Options(window=...) is for streaming queries, and no table of this one streams; say in "
            "the query itself which rows belong together"
        )
    check_names(options.windows, [s for block in blocks for s in block.query.sources])


def windowed(
    query: Query, inputs: Mapping[str, Input], options: Options
) -> tuple[Query, dict[str, Window]]:
    """`query` with the windows that `options` give its sources, and these by source."""
    tables = {
        source.table: WindowedTable(given.schema, given.is_streaming, given.watermark)
        for source in query.sources
        for given in [inputs[source.table]]
    }
    windows = choose_windows(options.windows, query, tables)
    for source in query.sources:
        if not isinstance(windows.get(source.name), RowWindow):
            continue
        if options.cells is not None and options.cells > 1:
            raise OptionError(
                f"the window of {source.name!r} counts rows, so all of them must come to one cell; "
                f"leave Options(cells={options.cells}) out, or use a window of time"
            )
        stream = inputs[source.table].stream
        if stream is not None and stream.is_mirrored:
            raise OptionError(
                f"the window of {source.name!r} counts rows, but mirrors may deliver a row twice; use "
                "a window of time"
            )
    return with_windows(query, windows, tables), windows


def state_folder(options: Options, block: str) -> str:
    """Where the state of a block lies."""
    return f"{str(options.checkpoint).rstrip('/')}/eddies/{block}"


def stored_cells(options: Options, plan: BlockPlan) -> CellPlan | None:
    """The cells with which the state in the checkpoint was made, None if there is no state yet.

    Raises if that state is another query's, or was made for another number of cells.
    """
    folder = state_folder(options, plan.name)
    known = PlanFile.read(folder)
    if known is None:
        return None
    _plan_file(plan).check(known, folder)
    cells = CellPlan.from_values(known.cells)
    if options.cells is not None and plan.cells.n_cells != cells.n_cells:
        raise OptionError(
            f"the checkpoint {folder} was made with {cells.n_cells} cells, Options(cells="
            f"{options.cells}) asks for others; leave it out, or use another checkpoint"
        )
    return cells


def saved(given: Input, spark: SparkSession, options: Options) -> Input:
    """A batch DataFrame as files that tasks can read; anything else as it is.

    It is saved once: a later start of the query, and a cell that begins late, read the same rows. A
    driver that is killed while it saves leaves a part, so there is a mark for what is whole.
    """
    if given.is_streaming or given.frame is None:
        return given
    path = f"{str(options.checkpoint).rstrip('/')}/eddies/static/{given.name}"
    files, whole = open_folder(f"{path}.whole")
    if files.get_file_info(whole).type != fs.FileType.File:
        given.frame.write.mode("overwrite").parquet(path)
        files.open_output_stream(whole).close()
    source = read.parquet(path)
    if not source.is_direct:
        raise UnsupportedError(
            f"table {given.name!r} was saved to {path!r}, which tasks cannot read; use a checkpoint "
            "on a file system that pyarrow can read"
        )
    return replace(given, source=source, frame=None, n_rows=source.n_rows)


def _plan_file(plan: BlockPlan) -> PlanFile:
    text = ", ".join(f"{source.table} {source.name}" for source in plan.query.sources)
    others = [plan.windows] if plan.windows else []
    return PlanFile(fingerprint(plan.query, *others), f"a join of {text}", asdict(plan.cells))


def stream_dataframe(
    plan: BlockPlan, spark: SparkSession, options: Options, schema: StructType
) -> DataFrame:
    """The output of the block's eddies, as a streaming DataFrame."""
    # The order in which the plan file has them: the log and Spark's offsets know relations by number,
    # and the order that a cell would like best changes with sizes.
    order = tuple(plan.cells.deliveries)
    relations, scans = list(order), ["scan"] * len(order)
    keys: dict[str, tuple[str, ...]] = {}
    packed: list[DataFrame] = []
    feeds: list[Any] = []
    for number, name in enumerate(order):
        given = plan.inputs[name]
        if not given.is_streaming:
            continue
        window = plan.windows.get(name)
        time = window.column if isinstance(window, TimeWindow) else None
        if given.stream is None:
            pack = plan.pack(name, number, time)
            packed.append(plan.columns(name, plan.reduced(spark)).mapInArrow(pack, PACKED))
            continue
        pack = make_pack(number, plan.cells.deliveries[name], plan.cells, time)
        columns = plan.read_columns(name)
        from eddies.spark.stream_source import Feed

        mirrors = []
        for mirror in range(1, getattr(given.stream, "n_mirrors", 1)):
            mirrors.append(len(relations))
            relations.append(name)
            scans.append(f"mirror {mirror}")
            keys[name] = given.stream.key
        n_cells = plan.cells.n_cells
        feeds.append(Feed(number, name, given.stream, columns, pack, n_cells, tuple(mirrors)))
    if feeds:
        from eddies.spark.stream_source import DEFAULT_ROWS_PER_EPOCH, stream_frame

        most = options.rows_per_epoch or DEFAULT_ROWS_PER_EPOCH
        packed.append(stream_frame(spark, feeds, rows_per_epoch=most))
    spec = CellSpec(
        plan.query,
        replace(options, state="stems"),
        tuple(relations),
        {n: plan.reading(n) for n in order if not plan.inputs[n].is_streaming},
        tuple(scans),
        keys,
        plan.windows,
    )
    task = StreamTask(
        plan.name,
        cloudpickle.dumps(spec),  # type: ignore[no-untyped-call]
        plan.cells,
        _plan_file(plan),
        state_folder(options, plan.name),
        None if plan.query.parts else tuple(schema.names),
    )
    dismiss_when_stopped(spark)
    together = packed[0]
    for other in packed[1:]:
        together = together.unionAll(other)
    return together.repartitionById(plan.cells.n_cells, "cell").mapInArrow(task, schema)
