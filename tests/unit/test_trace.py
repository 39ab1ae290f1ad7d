"""A trace counts what the threads of a cell tell it at the same time."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from eddies.core.eddy import Eddy
from eddies.core.events import Routed
from eddies.core.lineage import Signature
from eddies.spark.trace import Trace, read_traces
from tests.support.small import make_query

N_THREADS = 4
N_EVENTS = 20_000


@pytest.fixture
def often() -> Iterator[None]:
    """Threads take turns at almost every step."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("often")
def test_nothing_that_threads_tell_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(time=lambda: 200 * time.time())  # so that periods become longer
    monkeypatch.setattr("eddies.spark.trace.time", clock)
    trace = Trace.begin(str(tmp_path), "block", 0)
    assert trace is not None
    event = Routed(0, Signature(1), "stem:b", 2, 1, 100)

    def tell() -> None:
        for _ in range(N_EVENTS):
            trace.emit(event)

    threads = [threading.Thread(target=tell) for _ in range(N_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = pa.table({"k": [1]})
    trace.end(Eddy(make_query({"a": rows, "b": rows}, ["a.k = b.k"])))
    (found,) = read_traces(tmp_path)
    n_rows = sum(went["in"] for period in found["periods"] for went in period)
    assert n_rows == 2 * N_THREADS * N_EVENTS
