"""Arrow IPC files as one table: nothing to decode, local files are mapped into memory.

The file format (`.arrow`, `.feather`) has a directory of its record batches; each is a split. The
stream format has none: such a file is one split. Which format a file has is seen by its first bytes.

Spark does not read these files itself; `dataframe` lets Spark's tasks read them by this reader.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import ipc

from eddies.core.expr import Expr
from eddies.errors import SourceError
from eddies.sources.delivered import delivered_schema
from eddies.sources.file_rows import file_rows
from eddies.sources.opening import check_unchanged, reading
from eddies.sources.partitions import partition_schema, partition_values
from eddies.sources.paths import DataFile, Files, Place, shown
from eddies.sources.pruning import Pruner
from eddies.sources.ranges import point
from eddies.sources.reachable import Reachable
from eddies.sources.source import DEFAULT_BATCH_ROWS, Split
from eddies.sources.through_spark import dataframe_of_splits

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ArrowSource", "ArrowSplit"]

_MAGIC = b"ARROW1"


@dataclass(frozen=True, slots=True)
class ArrowSplit:
    """Record batch `number` of a file, or all of a stream (None). `schema` is the source's."""

    place: Place
    file: DataFile
    number: int | None
    n_rows: int | None
    n_bytes: int | None
    schema: pa.Schema

    def read(
        self,
        columns: Sequence[str],
        where: tuple[Expr, ...] = (),
        batch_rows: int = DEFAULT_BATCH_ROWS,
    ) -> Iterator[pa.RecordBatch]:
        check_unchanged(self.place, self.file)
        with reading(self.file):
            yield from file_rows(self.file, self.schema, columns, batch_rows, self._stored)

    def _stored(self, names: list[str]) -> Iterator[pa.RecordBatch]:
        with _opened(self.place, self.file) as source:
            if self.number is None:
                yield from ipc.open_stream(source)
                return
            written = ipc.open_file(source).schema
            fields = [written.get_field_index(name) for name in names]
            source.seek(0)
            options = ipc.IpcReadOptions(included_fields=fields, use_threads=False)
            if not names:
                options = ipc.IpcReadOptions(included_fields=[0], use_threads=False)
            yield ipc.open_file(source, options=options).get_batch(self.number)


def _opened(place: Place, file: DataFile) -> pa.NativeFile:
    return pa.memory_map(file.path) if place.is_local else place.system.open_input_file(file.path)


class ArrowSource(Reachable):
    """See `eddies.read.arrow`."""

    is_direct = True

    def __init__(self, files: Files) -> None:
        self.label = f"arrow {shown(files.given)}"
        self._files = files
        self.n_bytes = sum(file.n_bytes for file in files.found)
        first = None
        self._batch_rows: list[tuple[int, ...] | None] = []  # of each file; None for a stream
        for file in files.found:
            schema, sizes = _described(files.place, file)
            self._batch_rows.append(sizes)
            first = first or schema
            if schema != first:
                raise SourceError(
                    f"{file.path} has other columns than {files.found[0].path}: "
                    f"{_difference(schema, first)}"
                )
        assert first is not None
        for field in partition_schema(files.found, self.label):
            position = first.get_field_index(field.name)
            first = first.append(field) if position < 0 else first.set(position, field)
        self.schema: pa.Schema = first

    def __repr__(self) -> str:
        return f"<{self.label}: {len(self._files.found)} files>"

    @property
    def n_rows(self) -> int | None:
        if any(sizes is None for sizes in self._batch_rows):
            return None
        return sum(sum(sizes) for sizes in self._batch_rows if sizes is not None)

    def splits(self, where: tuple[Expr, ...] = ()) -> list[Split]:
        place, pruner = self._files.place, Pruner(where, self.schema)
        found: list[Split] = []
        for file, sizes in zip(self._files.found, self._batch_rows, strict=True):
            constants = partition_values(file, self.schema)
            if not pruner.may_pass({name: point(value) for name, value in constants.items()}):
                continue
            if sizes is None:
                found.append(ArrowSplit(place, file, None, None, file.n_bytes, self.schema))
                continue
            n_bytes = file.n_bytes // max(1, len(sizes))
            for number, n_rows in enumerate(sizes):
                if n_rows:
                    found.append(ArrowSplit(place, file, number, n_rows, n_bytes, self.schema))
        return found

    def dataframe(self, spark: SparkSession) -> DataFrame:
        return dataframe_of_splits(spark, self.splits(), self.schema)


def _described(place: Place, file: DataFile) -> tuple[pa.Schema, tuple[int, ...] | None]:
    """Columns as delivered, and the rows of each record batch if the file has a directory."""
    if file.n_bytes == 0:
        raise SourceError(f"{file.path} is empty (0 bytes), so it is no Arrow file; remove it")
    with reading(file), _opened(place, file) as source:
        is_file = source.read(len(_MAGIC)) == _MAGIC
        source.seek(0)
        if not is_file:
            return delivered_schema(ipc.open_stream(source).schema, file.path), None
        reader = ipc.open_file(source)
        schema = delivered_schema(reader.schema, file.path)
        if not schema.names:
            raise SourceError(f"{file.path} has no columns")
        # One column is enough to count; what is not included is not even decompressed.
        source.seek(0)
        one = ipc.open_file(source, options=ipc.IpcReadOptions(included_fields=[0]))
        return schema, tuple(one.get_batch(i).num_rows for i in range(one.num_record_batches))


def _difference(one: pa.Schema, other: pa.Schema) -> str:
    names = [name for name in one.names if name not in other.names]
    names += [name for name in other.names if name not in one.names]
    if names:
        return f"only one of them has {', '.join(map(repr, names))}"
    for field in other:
        type_ = one.field(field.name).type
        if type_ != field.type:
            return f"{field.name!r} is {type_} there and {field.type} here"
    return "in another order"
