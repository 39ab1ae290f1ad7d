"""The command line: `eddies demo | run | explain | figures | bench`.

A thin edge: it parses words, calls one function of the package and shows what comes back. Commands
import what they need when they run, so that `eddies --help` answers at once and `eddies run` starts
no Java. Errors made on purpose (`EddiesError`) end with their message and code 1, without a
traceback.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from eddies.errors import EddiesError, OptionError, SourceError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["main"]

# The packages of each extra in pyproject.toml, to say which one is missing.
_EXTRA_BY_PACKAGE = {
    "matplotlib": "figures",
    "duckdb": "bench",
    "polars": "bench",
    "psutil": "bench",
    "datafusion": "bench",
}


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="eddies")
def main() -> None:
    """Joins without a query plan: the order adapts while the query runs."""


@main.command()
@click.option("--rows", default=2_000_000, show_default=True, help="Rows of the fact table.")
@click.option("--partitions", default=2, show_default=True, help="Spark partitions: one eddy each.")
@click.option("--seed", default=7, show_default=True, help="Seed of the generated data.")
def demo(rows: int, partitions: int, seed: int) -> None:
    """Join a star of five tables on embedded Spark while selectivities flip."""
    with _errors_as_messages():
        from eddies.demo import main as run_demo

        raise SystemExit(run_demo(n_rows=rows, n_partitions=partitions, seed=seed))


@main.command()
@click.argument("query")
@click.option(
    "tables", "--table", "-t", multiple=True, metavar="NAME=PATH", help="A table: a file."
)
@click.option("--policy", default="auto", show_default=True, help="Who routes.")
@click.option("--limit", default=20, show_default=True, help="Rows to show.")
@click.option(
    "--out", type=click.Path(path_type=Path), help="Write the result: .parquet, .arrow, .csv."
)
@click.option("--spark", "on_spark", is_flag=True, help="Any SQL, on embedded Spark.")
def run(
    query: str,
    tables: tuple[str, ...],
    policy: str,
    limit: int,
    out: Path | None,
    on_spark: bool,
) -> None:
    """Run QUERY on the given tables, in this process or (--spark) on embedded Spark.

    eddies run "SELECT * FROM a JOIN b ON a.k = b.k" -t a=a.parquet -t b=b.parquet
    """
    with _errors_as_messages():
        write = None if out is None else _writer(out)
        from eddies.core.options import Options

        options = Options(policy=policy)
        if on_spark:
            import eddies

            spark = eddies.session()
            started = time.perf_counter()
            result = eddies.sql(query, _paths(tables), spark=spark, options=options).toArrow()
        else:
            from eddies.hosts import local

            table_by_name = _read_tables(tables)
            started = time.perf_counter()
            result = local.sql(query, table_by_name, options=options)
        elapsed = time.perf_counter() - started
        if write is None:
            _show(result, limit)
        else:
            write(result)
        click.echo(f"{result.num_rows:,} rows in {elapsed:.2f} s")


@main.command()
@click.argument("query")
@click.option(
    "tables", "--table", "-t", multiple=True, metavar="NAME=PATH", help="A table: a file."
)
@click.option("--spark", "on_spark", is_flag=True, help="As it runs on Spark: cells, text above.")
@click.option("--analyze", is_flag=True, help="Run it on Spark and show the routes really taken.")
def explain(query: str, tables: tuple[str, ...], on_spark: bool, analyze: bool) -> None:
    """Show QUERY's sources, predicates and modules, and the routes that are legal."""
    with _errors_as_messages():
        if on_spark or analyze:
            import eddies

            click.echo(eddies.explain(query, _paths(tables), analyze=analyze))
            return
        from eddies.hosts import local

        click.echo(local.explain(query, _read_tables(tables)))


@main.command()
@click.argument("names", nargs=-1)
@click.option(
    "--out", default="figures", show_default=True, type=click.Path(path_type=Path), help="Folder."
)
@click.option(
    "--json", "json_path", type=click.Path(path_type=Path), help="Also write the numbers."
)
def figures(names: tuple[str, ...], out: Path, json_path: Path | None) -> None:
    """Draw the papers' figures, all or those with the given NAMES."""
    with _errors_as_messages():
        from eddies.observe.figures import main as draw

        raise SystemExit(draw(names, out, json_path))


@main.group()
def bench() -> None:
    """Measure eddies beside other engines."""


@bench.command("core")
@click.option(
    "--json", "json_path", type=click.Path(path_type=Path), help="Also write the numbers."
)
@click.option("--repeat", default=5, show_default=True, help="Runs of each case; medians count.")
@click.option("--quick", is_flag=True, help="Small sizes: does it run, not how fast.")
@click.option("cases", "--case", multiple=True, help="Only this case; may be repeated.")
def bench_core(json_path: Path | None, repeat: int, quick: bool, cases: tuple[str, ...]) -> None:
    """The eddy alone, in this process, on joins of millions of rows."""
    with _errors_as_messages():
        from eddies.bench.core import main as measure

        raise SystemExit(measure(cases, repeat, json_path, quick=quick))


@bench.command("spark")
@click.option(
    "cases", "--case", multiple=True, help="Only this case, or pattern (q05, q*_worst); repeatable."
)
@click.option("engines", "--engine", multiple=True, help="Only this engine; repeatable.")
@click.option(
    "--scale", default=1.0, show_default=True, help="TPC-H scale factor; 10: five large queries."
)
@click.option("--repeat", default=3, show_default=True, help="Warm runs of each; medians count.")
@click.option("--exchange", is_flag=True, help="Our inputs are DataFrames instead of paths.")
@click.option("--cache", help="Our workers keep so many bytes of decoded columns, such as 1GB.")
@click.option("--cold", is_flag=True, help="Instead: the first query of a new process.")
@click.option("--huge", is_flag=True, help="Instead: time and memory of 10 M and 100 M rows.")
@click.option(
    "data_folder", "--data", type=click.Path(path_type=Path), help="Folder of generated tables."
)
@click.option(
    "--json", "json_path", type=click.Path(path_type=Path), help="Also write the numbers."
)
def bench_spark(
    cases: tuple[str, ...],
    engines: tuple[str, ...],
    scale: float,
    repeat: int,
    exchange: bool,
    cache: str | None,
    cold: bool,
    huge: bool,
    data_folder: Path | None,
    json_path: Path | None,
) -> None:
    """Eddies on Spark, Spark SQL and DuckDB on the same Parquet files."""
    with _errors_as_messages():
        if cold and huge:
            raise OptionError("--cold and --huge are measurements of their own: give one of them")
        if cold:
            from eddies.bench.spark.cold import main as measure_cold

            raise SystemExit(measure_cold(repeat, scale, data_folder, json_path))
        if huge:
            from eddies.bench.spark.huge import main as measure_huge

            raise SystemExit(measure_huge(data_folder, json_path))
        from eddies.bench.spark.run import main as measure

        raise SystemExit(
            measure(
                cases,
                engines=engines,
                scale=scale,
                repeat=repeat,
                exchange=exchange,
                cache=cache,
                data_folder=data_folder,
                json_path=json_path,
            )
        )


@bench.command("torture")
@click.option("shapes", "--shape", multiple=True, help="Only this shape; repeatable.")
@click.option("engines", "--engine", multiple=True, help="Only this engine; repeatable.")
@click.option(
    "data_folder", "--data", type=click.Path(path_type=Path), help="Folder of generated tables."
)
@click.option(
    "--json", "json_path", type=click.Path(path_type=Path), help="Also write the numbers."
)
def bench_torture(
    shapes: tuple[str, ...],
    engines: tuple[str, ...],
    data_folder: Path | None,
    json_path: Path | None,
) -> None:
    """Joins on which engines fall over: who finishes within 60 s and 8 GB."""
    with _errors_as_messages():
        from eddies.bench.torture.run import main as measure

        raise SystemExit(measure(shapes, engines, data_folder=data_folder, json_path=json_path))


@bench.command("spill")
@click.option("--scale", default=1.0, show_default=True, help="1: five gigabytes of input.")
@click.option("--memory", default="256MB", show_default=True, help="Allowed to each engine.")
@click.option("--threads", default=2, show_default=True, help="Of each engine.")
@click.option(
    "--data", "data_folder", type=click.Path(path_type=Path), help="Where generated tables lie."
)
@click.option(
    "--json", "json_path", type=click.Path(path_type=Path), help="Also write the numbers."
)
def bench_spill(
    scale: float, memory: str, threads: int, data_folder: Path | None, json_path: Path | None
) -> None:
    """A join of inputs far larger than memory, beside DuckDB under the same limit."""
    with _errors_as_messages():
        from eddies.bench.spill import main as measure

        raise SystemExit(
            measure(
                scale=scale,
                memory=memory,
                threads=threads,
                data_folder=data_folder,
                json_path=json_path,
            )
        )


@bench.command("streaming")
@click.option("cases", "--case", multiple=True, help="epochs, rate, early, windows; repeatable.")
@click.option("--minutes", default=10.0, show_default=True, help="Length of epochs and windows.")
@click.option(
    "--arrival-s", default=60.0, show_default=True, help="Seconds that slow sources take to arrive."
)
@click.option(
    "--json", "json_path", type=click.Path(path_type=Path), help="Also write the numbers."
)
def bench_streaming(
    cases: tuple[str, ...], minutes: float, arrival_s: float, json_path: Path | None
) -> None:
    """Streaming on Spark: epoch times, sustained rate, early results, windows."""
    with _errors_as_messages():
        from eddies.bench.streaming.run import main as measure

        raise SystemExit(measure(cases, minutes=minutes, arrival_s=arrival_s, json_path=json_path))


@contextmanager
def _errors_as_messages() -> Iterator[None]:
    try:
        yield
    except EddiesError as error:
        raise click.ClickException(str(error)) from error
    except ModuleNotFoundError as error:
        extra = _EXTRA_BY_PACKAGE.get(error.name or "")
        if extra is None:
            raise
        raise click.ClickException(
            f"this command needs {error.name}: pip install 'eddies[{extra}]'"
        ) from error


def _paths(texts: tuple[str, ...]) -> dict[str, str]:
    path_by_name: dict[str, str] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not (name and equals and path):
            raise OptionError(f"--table {text!r}: write it as name=path, like orders=o.parquet")
        if name in path_by_name:
            raise OptionError(f"--table {name} is given twice")
        path_by_name[name] = path
    return path_by_name


def _read_tables(texts: tuple[str, ...]) -> dict[str, pa.Table]:
    return {name: _read(name, Path(path)) for name, path in _paths(texts).items()}


def _read(name: str, path: Path) -> pa.Table:
    """The file at `path`, whole; its suffix says the format."""
    import pyarrow as pa
    from pyarrow import dataset

    format_by_suffix = {".parquet": "parquet", ".arrow": "ipc", ".csv": "csv", ".json": "json"}
    if path.suffix not in format_by_suffix:
        raise OptionError(f"--table {name}={path}: must end in {', '.join(format_by_suffix)}")
    if not path.is_file():
        raise SourceError(f"--table {name}={path}: there is no such file")
    try:
        return dataset.dataset(path, format=format_by_suffix[path.suffix]).to_table()
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"--table {name}={path} cannot be read: {error}") from error


def _writer(path: Path) -> Callable[[pa.Table], None]:
    """How to write a table to `path`, by its suffix; known before the query runs."""
    from pyarrow import csv, feather, parquet

    by_suffix: dict[str, Callable[[pa.Table], None]] = {
        ".parquet": lambda table: parquet.write_table(table, path),
        ".arrow": lambda table: feather.write_feather(table, path, compression="uncompressed"),
        ".csv": lambda table: csv.write_csv(table, path),
    }
    if path.suffix not in by_suffix:
        raise OptionError(f"--out {path}: the name must end in {', '.join(by_suffix)}")
    if not path.absolute().parent.is_dir():
        raise OptionError(f"--out {path}: there is no folder {path.absolute().parent}")
    return by_suffix[path.suffix]


def _show(table: pa.Table, limit: int) -> None:
    from rich.console import Console
    from rich.table import Table

    shown = Table()
    for name in table.column_names:
        shown.add_column(name)
    # By column: a result may have two columns of one name, which a row as a dict cannot hold.
    columns = [column.to_pylist() for column in table.slice(0, limit).columns]
    for row in zip(*columns, strict=True):
        shown.add_row(*("NULL" if value is None else str(value) for value in row))
    Console().print(shown)
    if table.num_rows > limit:
        click.echo(
            f"({limit} of {table.num_rows:,} rows shown; --limit shows more, --out writes all)"
        )


if __name__ == "__main__":
    main()
