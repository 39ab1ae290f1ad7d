"""The process of one engine and one shape.

    python -m eddies.bench.torture.child ENGINE SHAPE DATA_FOLDER SCALE

It warms the engine up on a hundredth of the tables, makes the real ones known, says `ready`, and runs
the query: once, and again while all runs together are short. Each step is a line of JSON on standard
output, which the watchdog reads.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from pathlib import Path

from eddies.bench.answers import plain_rows
from eddies.bench.torture.engines import Ask, open_engine
from eddies.bench.torture.shapes import SHAPES
from eddies.bench.torture.watchdog import end_with_parent

__all__ = ["WARM_UP_SCALE", "main", "run_and_report"]

WARM_UP_SCALE = 0.01
N_RUNS = 3
# Together; a query that takes longer is not run again, and chance matters less.
RUNS_S = 15.0


def main(engine: str, shape_name: str, data_folder: Path, scale: float) -> None:
    """Run and report. Errors end the process; the watchdog shows the last line of them."""
    end_with_parent()
    shape = SHAPES[shape_name]
    open_engine(engine, shape.files(data_folder, WARM_UP_SCALE * scale))(shape.sql)
    run_and_report(open_engine(engine, shape.files(data_folder, scale)), shape.sql)


def run_and_report(ask: Ask, sql: str) -> None:
    """Say `ready`, run the query once or a few times, and say how long it took."""
    _say({"event": "ready"})
    begun = time.perf_counter()
    for _ in range(N_RUNS):
        gc.collect()
        started = time.perf_counter()
        answer = ask(sql)
        seconds = time.perf_counter() - started
        _say({"event": "ran", "seconds": seconds, "rows": plain_rows(answer)})
        if time.perf_counter() - begun > RUNS_S:
            break
    _say({"event": "done"})


def _say(message: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), float(sys.argv[4]))
