"""Memory is a promise: measured resident memory stays within what `Options(memory=...)` says."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

CONSTANT = 64 << 20  # batches under way, scratch of kernels, what the allocator keeps

RUN = """
import json, sys
import numpy as np, psutil, pyarrow as pa
from pathlib import Path
from eddies.core.eddy import Eddy
from eddies.core.options import Options
from tests.support.small import make_query

def peak():
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024

def run(n, memory, order, state):
    empty = np.empty(0, dtype=np.int64)
    schema = {"k": empty, "v": empty, "w": empty}
    tables = {name: pa.table(schema) for name in "abc"}
    query = make_query(tables, ["a.k = b.k", "b.v = c.v"])
    eddy = Eddy(query, Options(memory=memory, state=state))
    rng = np.random.default_rng(1)
    found = 0
    pieces = [(name, i) for i in range(0, n, 50_000) for name in "abc"]
    if order == "one by one":
        pieces.sort()
    ends = {name: i for i, (name, _) in enumerate(pieces)}
    for i, (name, first) in enumerate(pieces):
        m = min(50_000, n - first)
        columns = {c: rng.integers(0, 20 * n, m) for c in "kvw"}
        eddy.push(name, pa.record_batch(columns))
        if ends[name] == i:
            eddy.end(name)
        while (rows := eddy.poll()) is not None:
            found += rows.num_rows
    while (rows := eddy.poll()) is not None:
        found += rows.num_rows
    assert eddy.is_done
    return getattr(eddy.mode, "spilling", eddy.mode).directory.n_written

run(5000, "1MB", *sys.argv[3:])
loaded = psutil.Process().memory_info().rss
written = run(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
print(json.dumps({"peak": peak() - loaded, "written": written}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("order", "state"),
    [
        ("one by one", "stems"),
        ("in turn", "stems"),
        ("in turn", "joins"),
        ("in turn", "static"),
        ("in turn", "stairs"),
    ],
)
def test_resident_memory_stays_within_the_promise(order: str, state: str) -> None:
    """A process of its own joins 360 MB with memory for 32; its sources are made as they are read."""
    memory = 32 << 20
    done = subprocess.run(
        [sys.executable, "-c", RUN, "5000000", str(memory), order, state],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["written"] > 3 * memory
    assert found["peak"] <= 1.25 * memory + CONSTANT, found
