"""`eddies bench spark --cold`: the first query of a new process, ours and Spark SQL's.

    python -m eddies.bench.spark.cold us|spark DATA_FOLDER SCALE

Each process imports what it needs, starts an embedded Spark, runs TPC-H Q5 once and ends; the time
is from the process's start to the answer. The engines take turns after one process each that is not
counted: it leaves compiled kernels, byte code and files in the caches on disk.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from eddies.bench.claims import Claim, verdicts, wide_console
from eddies.bench.spark.engines import arena
from eddies.bench.storage import default_data_folder
from eddies.bench.tpc import tpch_files, tpch_text

__all__ = ["first_query", "main"]

ENGINES = ("us", "spark")
QUERY = "q05"
OVER_SPARK_S = 4.0
PROCESS_TIMEOUT_S = 300


def main(
    repeat: int = 3,
    scale: float = 1.0,
    data_folder: Path | None = None,
    json_path: Path | None = None,
    console: Console | None = None,
) -> int:
    """Time `repeat` processes of each engine, show medians and the claim."""
    console = console or wide_console()
    folder = data_folder or default_data_folder()
    tpch_files(folder, scale)
    seconds_by_engine: dict[str, list[dict[str, float]]] = {engine: [] for engine in ENGINES}
    with console.status("") as status:
        for turn in range(repeat + 1):
            for engine in ENGINES if turn % 2 else ENGINES[::-1]:
                status.update(f"process {turn} of {repeat}: {engine}")
                measured = _in_new_process(engine, folder, scale)
                if turn > 0:
                    seconds_by_engine[engine].append(measured)
    medians = {
        engine: {part: statistics.median(one[part] for one in all_of) for part in all_of[0]}
        for engine, all_of in seconds_by_engine.items()
    }
    table = Table(title="First query of a process, medians in seconds", title_justify="left")
    for heading in ("", "start to answer", "session", "query"):
        table.add_column(heading, justify="left" if not heading else "right")
    for engine, parts in medians.items():
        table.add_row(engine, *(f"{parts[part]:.2f}" for part in ("total", "session", "query")))
    over_s = medians["us"]["total"] - medians["spark"]["total"]
    claim = Claim("first query", "us - Spark SQL, seconds", over_s, OVER_SPARK_S)
    console.print(table, verdicts([claim], is_judged=scale >= 1.0))
    if json_path is not None:
        report = {f"{engine}_s": parts["total"] for engine, parts in medians.items()}
        json_path.write_text(json.dumps({"cold": report | {"parts": medians}}, indent=2) + "\n")
    return 0


def first_query(engine: str, data_folder: Path, scale: float) -> dict[str, float]:
    """Seconds from this process's start to the answer, and of the session and the query alone."""
    begun = time.time()
    with arena(PROCESS_TIMEOUT_S) as made:
        ready = time.time()
        text = tpch_text(QUERY)
        ask = made.ask_by_engine("tpch", tpch_files(data_folder, scale), [text], [engine])[engine]
        ask(text)
        answered = time.time()
    return {
        "total": answered - psutil.Process().create_time(),
        "session": ready - begun,
        "query": answered - ready,
    }


def _in_new_process(engine: str, folder: Path, scale: float) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "eddies.bench.spark.cold", engine, str(folder), f"{scale:g}"],
        capture_output=True,
        text=True,
        timeout=PROCESS_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"the first query of {engine} failed:\n{done.stderr[-2000:]}")
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


if __name__ == "__main__":
    sys.stdout.write(json.dumps(first_query(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]))))
