"""Peak memory of one run, in a process of its own.

    python -m eddies.bench.memory CASE FOLDER      (FOLDER holds the tables, as `save` writes them)

The child imports everything and runs the query on tiny tables, so that kernels are loaded; notes
its resident memory; reads the tables into memory; runs the query once; and reports how far the peak
was above the note. Input is part of the figure. Tables come from files, not from their generator,
whose own intermediate arrays would be taken for the eddy's.

Known limitations: the peak is exact on Linux (`VmHWM`); elsewhere it is `ru_maxrss`, which may
count what the process held before the note was taken.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyarrow as pa
from pyarrow import ipc

from eddies.bench.cases import CASES, Case
from eddies.bench.data import Tables
from eddies.bench.peers import eddy_contestant
from eddies.core.options import Options

__all__ = ["Memory", "peak_memory"]

WARM_UP_SCALE = 0.001
CHILD_TIMEOUT_S = 600
READ_ROWS = 1 << 20


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes above the loaded program: at the peak of a run, and of input and result alone."""

    peak_bytes: int
    needed_bytes: int


def peak_memory(case: Case, tables: Tables) -> Memory:
    """Run `case` once in a fresh process and measure it. All columns are needed by the queries."""
    with tempfile.TemporaryDirectory(prefix="eddies-bench-") as folder:
        save(tables, Path(folder))
        command = [sys.executable, "-m", "eddies.bench.memory", case.name, folder]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=CHILD_TIMEOUT_S, check=False
        )
    if done.returncode != 0:
        raise RuntimeError(f"measuring memory of case {case.name} failed:\n{done.stderr}")
    result_bytes = 16  # one row of a count and a sum
    needed_bytes = sum(table.nbytes for table in tables.values()) + result_bytes
    return Memory(json.loads(done.stdout)["peak_bytes"], needed_bytes)


def save(tables: Tables, folder: Path) -> None:
    """One uncompressed Arrow file per table."""
    for name, table in tables.items():
        with ipc.new_file(folder / f"{name}.arrow", table.schema) as writer:
            writer.write_table(table, max_chunksize=READ_ROWS)


def load(folder: Path) -> Tables:
    """The tables of `save`, copied into this process's memory."""
    tables: Tables = {}
    for path in sorted(folder.glob("*.arrow")):
        with pa.OSFile(str(path)) as file:
            tables[path.stem] = ipc.open_file(file).read_all()
    return tables


def measure_here(case: Case, folder: Path) -> int:
    """Peak bytes of one run in this process, above what it holds after a tiny run."""
    eddy_contestant("us", case, case.make(WARM_UP_SCALE), case.text, Options()).run()
    loaded_bytes: int = psutil.Process().memory_info().rss
    eddy_contestant("us", case, load(folder), case.text, Options()).run()
    return _peak_bytes() - loaded_bytes


def _peak_bytes() -> int:
    if sys.platform == "linux":
        # ru_maxrss would include the parent's peak, which a forked child inherits.
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


if __name__ == "__main__":
    measured = measure_here(CASES[sys.argv[1]], Path(sys.argv[2]))
    sys.stdout.write(json.dumps({"peak_bytes": measured}))
