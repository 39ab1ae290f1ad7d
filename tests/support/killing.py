"""Processes of one test, found by a mark in their environment, and killed.

Every process that a marked one starts has the mark too, so the workers and keepers of a Spark that runs
elsewhere on the machine are never touched.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

__all__ = ["KINDS", "Kind", "Marked", "MARK_VARIABLE", "wait_until"]

MARK_VARIABLE = "EDDIES_TEST_MARK"
Kind = Literal["worker", "daemon", "keeper", "executor", "driver", "gateway"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Process:
    """A process as the system shows it."""

    number: int
    parent: int
    command: str

    @property
    def kind(self) -> Kind | None:
        """What it does for the query; None: something else."""
        if "-m eddies.streaming.keeper" in self.command:
            return "keeper"
        if "-m eddies.spark.daemon" in self.command:
            return "daemon"
        if "CoarseGrainedExecutorBackend" in self.command:
            return "executor"
        if "-m tests.support.stream_driver" in self.command:
            return "driver"
        if "SparkSubmit" in self.command:
            return "gateway"
        return None


@dataclass(frozen=True, slots=True)
class Marked:
    """All processes with one mark."""

    mark: str

    def processes(self) -> dict[int, tuple[Kind, Process]]:
        """Those that do something for the query. Python workers are forked from a daemon, and look like
        it in everything but their parent, which for a daemon is Java.
        """
        found = [process for process in map(self._read, _numbers()) if process is not None]
        java = {process.number for process in found if process.kind in ("executor", "gateway")}
        kinds: dict[int, tuple[Kind, Process]] = {}
        for process in found:
            kind = process.kind
            if kind is not None:
                is_worker = kind == "daemon" and process.parent not in java
                kinds[process.number] = ("worker" if is_worker else kind, process)
        return kinds

    def of_kind(self, *kinds: Kind) -> list[int]:
        return sorted(number for number, (kind, _) in self.processes().items() if kind in kinds)

    def wait_until_gone(self, most_s: float, why: str) -> None:
        """Until there is none any more."""
        end_s = time.monotonic() + most_s
        while left := self.processes():
            shown = "\n".join(f"{kind} {process}"[:600] for kind, process in left.values())
            assert time.monotonic() < end_s, f"not within {most_s:.0f} s: {why}\n{shown}"
            time.sleep(0.05)

    def _read(self, number: int) -> Process | None:
        folder = Path("/proc") / str(number)
        try:
            if f"{MARK_VARIABLE}={self.mark}".encode() not in (folder / "environ").read_bytes():
                return None
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:  # it has ended meanwhile
            return None
        return None if fields[0] in "ZX" else Process(number, int(fields[1]), command)


def _numbers() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def kill(number: int) -> bool:
    """End a process without a warning; False if it had ended."""
    try:
        os.kill(number, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def wait_until(what: Callable[[], object], most_s: float, why: str) -> None:
    """Until `what` gives something true."""
    end_s = time.monotonic() + most_s
    while not what():
        assert time.monotonic() < end_s, f"not within {most_s:.0f} s: {why}"
        time.sleep(0.05)
