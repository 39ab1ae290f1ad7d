"""Traces: what every eddy did, in files that the driver reads.

Spark has no way back from a task to the driver for such news. An eddy with a trace folder writes one
JSON file per cell when it ends: rows by module and signature, decisions over time, the most memory
that was seen between two relations. A task that Spark runs again writes its file again; the last
attempt counts.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from eddies.core.eddy import Eddy
from eddies.core.events import Event, LookupFailed, MirrorDiffers, Routed, ScanFailed
from eddies.core.lineage import bits
from eddies.errors import SourceError

__all__ = ["Trace", "read_traces"]

_MOST_PERIODS = 64


class Trace:
    """Listens to one eddy. Where first rows of a route go is counted by periods of time. Threads of a
    cell tell of what they do at the same time.
    """

    def __init__(self, path: Path, block: str, cell: int) -> None:
        self._path = path
        self._block = block
        self._cell = cell
        self._began = time.time()
        self._period_s = 0.02
        self._periods: list[Counter[tuple[int, str]]] = [Counter()]
        self._memory: dict[str, int] = {}
        self._stored: dict[str, int] = {}
        self._troubles: Counter[str] = Counter()
        self._lock = threading.Lock()  # of the counters

    @classmethod
    def begin(cls, folder: str | None, block: str, cell: int) -> Trace | None:
        """A trace in `folder`, or None when no trace is wanted."""
        if folder is None:
            return None
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SourceError(
                f"trace_dir {folder!r} cannot be written by an executor: {error}; choose a folder "
                "that all executors see"
            ) from error
        return cls(Path(folder) / f"{block}-cell-{cell:05}.json", block, cell)

    def emit(self, event: Event) -> None:
        """Count where rows go, and what went wrong with access methods."""
        with self._lock:
            match event:
                case LookupFailed():
                    self._troubles[f"{event.source}: look-ups by {event.index!r} failed"] += 1
                case ScanFailed():
                    self._troubles[f"{event.source}: {event.scan} failed"] += 1
                case MirrorDiffers():
                    said = f"{event.source}: rows of {event.access} differ from a mirror's"
                    self._troubles[said] += event.n_rows
                case Routed():
                    number = self._period_now()
                    self._periods[number][event.signature.sources, event.module] += event.n_in

    def _period_now(self) -> int:
        """The number of this moment's period. When there would be too many, they become longer."""
        period = int((time.time() - self._began) / self._period_s)
        while period >= _MOST_PERIODS:
            halves = [*self._periods, Counter()]
            self._periods = [halves[i] + halves[i + 1] for i in range(0, len(self._periods), 2)]
            self._period_s *= 2
            period //= 2
        while len(self._periods) <= period:
            self._periods.append(Counter())
        return period

    def see(self, eddy: Eddy) -> None:
        """Look at the state while it is there; the most that was seen is reported."""
        memory = eddy.memory()
        if sum(memory.values()) >= sum(self._memory.values()):
            self._memory = memory
        for source in eddy.progress().sources:
            self._stored[source.name] = max(source.n_stored, self._stored.get(source.name, 0))

    def end(self, eddy: Eddy) -> None:
        """Write the file."""
        names = [role.name for role in eddy.graph.roles]
        progress = eddy.progress()

        def spanned(mask: int) -> list[str]:
            return [names[source] for source in bits(mask)]

        record: dict[str, Any] = {
            "block": self._block,
            "cell": self._cell,
            "began": self._began,
            "seconds": time.time() - self._began,
            "results": eddy.output.n_rows,
            "decisions": progress.n_decisions,
            "ms_deciding": progress.ns_deciding / 1e6,
            "ms_indexing": progress.ns_indexing / 1e6,
            "ms_working": progress.ns_working / 1e6,
            "memory": self._memory,
            "sources": [
                {"name": s.name, "arrived": s.n_arrived, "stored": self._stored.get(s.name, 0)}
                for s in progress.sources
            ],
            "routes": [
                {
                    "from": spanned(r.signature.sources),
                    "module": r.module,
                    "in": r.n_in,
                    "out": r.n_out,
                    "ms": r.ns / 1e6,
                }
                for r in progress.routes
                if r.n_in
            ],
            "troubles": dict(self._troubles),
            "period_s": self._period_s,
            "periods": [
                [
                    {"from": spanned(mask), "module": module, "in": n}
                    for (mask, module), n in p.items()
                ]
                for p in self._periods
            ],
        }
        unfinished = self._path.with_suffix(f".{os.getpid()}.part")
        unfinished.write_text(json.dumps(record))
        unfinished.replace(self._path)


def read_traces(folder: str | Path) -> list[dict[str, Any]]:
    """The traces in `folder`, by block and cell."""
    return [json.loads(path.read_text()) for path in sorted(Path(folder).glob("*-cell-*.json"))]
