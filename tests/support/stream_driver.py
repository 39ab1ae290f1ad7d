"""A driver of its own process: a streaming join of four folders of files, written to Parquet.

    python -m tests.support.stream_driver SETTINGS.json

It reads what arrives in the folders until a file `complete` says that nothing more will come, and ends
when everything is written. Whoever kills it starts it again with the same settings: it goes on from the
checkpoint.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.support.clusters import JAVA_OPTIONS
from tests.support.stream_tables import STREAM_QUERY, stream_tables

__all__ = ["DriverSettings"]

_LOOK_EVERY_S = 0.2


@dataclass(frozen=True, slots=True)
class DriverSettings:
    """Where things are, and which Spark runs the query."""

    master: str
    folder: str
    memory: int | None = None
    cells: int = 2

    @property
    def inputs(self) -> Path:
        return Path(self.folder) / "inputs"

    @property
    def checkpoint(self) -> Path:
        return Path(self.folder) / "checkpoint"

    @property
    def out(self) -> Path:
        return Path(self.folder) / "out"

    @property
    def complete(self) -> Path:
        """There when all files have arrived."""
        return Path(self.folder) / "complete"

    @property
    def done(self) -> Path:
        """There when all results are written."""
        return Path(self.folder) / "done"

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> DriverSettings:
        return cls(**json.loads(path.read_text()))


def drive(settings: DriverSettings) -> None:
    """Run the query to its end."""
    import eddies

    spark = eddies.session(
        **{
            "spark.master": settings.master,
            "spark.driver.memory": "600m",
            "spark.driver.extraJavaOptions": JAVA_OPTIONS,
            "spark.executor.memory": "500m",
            "spark.executor.extraJavaOptions": JAVA_OPTIONS,
            "spark.sql.shuffle.partitions": 2,
            # Many will be killed; the query must not stop for that.
            "spark.task.maxFailures": 50,
            "spark.stage.maxConsecutiveAttempts": 50,
        }
    )
    streams = {}
    for name, table in stream_tables(1).items():
        schema = spark.createDataFrame(table.slice(0, 0)).schema
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        streams[name] = reader.parquet(str(settings.inputs / name))
    options = eddies.Options(
        checkpoint=str(settings.checkpoint), cells=settings.cells, memory=settings.memory
    )
    frame = eddies.sql(STREAM_QUERY, streams, spark=spark, options=options)
    writer = frame.writeStream.format("parquet")
    query = writer.option("checkpointLocation", options.checkpoint).start(str(settings.out))
    while not settings.complete.exists():
        query.awaitTermination(_LOOK_EVERY_S)
    query.processAllAvailable()
    query.stop()
    settings.done.touch()
    spark.stop()


if __name__ == "__main__":
    drive(DriverSettings.read(Path(sys.argv[1])))
