"""Runs a child process within limits of time and memory, for it and everything it starts.

Memory is the resident memory of the whole process tree, summed; pages that two of its processes share
count twice. It is looked at every tenth of a second; a process that grows faster than that meets a
limit of its own, set by the kernel. The clock starts when the child says that it is ready. A child
that goes over a limit is ended with all its children: out of time, or out of memory.
"""

from __future__ import annotations

import json
import os
import queue
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import IO, Literal

import psutil

__all__ = ["Limits", "Outcome", "Status", "end_tree", "end_with_parent", "run_within", "tree_bytes"]

Status = Literal["finished", "out of time", "out of memory", "failed"]

POLL_S = 0.1
PARENT_POLL_S = 0.5
# Beyond the watched limit, so that it is met only between two looks.
KERNEL_LIMIT_FACTOR = 1.5
# What engines say when they run into the memory limit that they were given.
MEMORY_WORDS = (
    "out of memory",
    "outofmemory",
    "resources exhausted",
    "memoryerror",
    "bad_alloc",
    "memory allocation of",
    "failed to allocate",
    "java heap space",
    "unable to allocate",
)


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds to become ready, seconds for the first answer, and bytes for the process tree."""

    query_s: float = 60.0
    memory_bytes: int = 8 * 10**9
    start_s: float = 240.0


@dataclass(slots=True)
class Outcome:
    """How it ended. `rows` is the answer of the first run; `seconds` has the time of every run."""

    status: Status
    seconds: list[float] = field(default_factory=list)
    rows: list[tuple[object, ...]] | None = None
    peak_bytes: int = 0
    message: str = ""


def run_within(command: Sequence[str], limits: Limits) -> Outcome:
    """Run `command` and read its lines (see `child`); it is gone when this returns."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: _limit_this_process(int(limits.memory_bytes * KERNEL_LIMIT_FACTOR)),
    )
    lines: queue.Queue[str | None] = queue.Queue()
    errors: list[str] = []
    readers = [
        threading.Thread(target=_read_lines, args=(process.stdout, lines), daemon=True),
        threading.Thread(target=_read_all, args=(process.stderr, errors), daemon=True),
    ]
    for reader in readers:
        reader.start()
    outcome = Outcome("failed")
    try:
        _watch(process, lines, limits, outcome)
    finally:
        end_tree(process.pid)
        process.wait()
        for reader in readers:
            reader.join(timeout=5)
    if outcome.status == "failed":
        _explain(outcome, "".join(errors), process.returncode)
    return outcome


def end_with_parent() -> None:
    """Called in a child: end this process when the one that started it is gone, however it went."""
    parent = os.getppid()

    def wait() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_POLL_S)
        end_tree(os.getpid())

    threading.Thread(target=wait, daemon=True).start()


def tree_bytes(pid: int) -> int:
    """Resident bytes of a process and everything it started."""
    return sum(_resident_bytes(process) for process in _tree(pid))


def end_tree(pid: int) -> None:
    """End a process and everything it started, at once."""
    for process in reversed(_tree(pid)):  # the first one last: it may be this process
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue


def _watch(
    process: subprocess.Popen[str], lines: queue.Queue[str | None], limits: Limits, outcome: Outcome
) -> None:
    deadline = time.monotonic() + limits.start_s
    while True:
        try:
            line = lines.get(timeout=POLL_S)
        except queue.Empty:
            line = ""
        if line is None:
            break  # the child has closed its output: it has ended, well or not
        message = json.loads(line) if line.startswith("{") else {}
        if message.get("event") == "ready":
            deadline = time.monotonic() + limits.query_s
        elif message.get("event") == "ran":
            outcome.seconds.append(message["seconds"])
            if outcome.rows is None:
                outcome.rows = [tuple(row) for row in message["rows"]]
                outcome.status = "finished"
        elif message.get("event") == "done":
            break
        used = tree_bytes(process.pid)
        outcome.peak_bytes = max(outcome.peak_bytes, used)
        if used > limits.memory_bytes:
            outcome.status = "out of memory"
            break
        if time.monotonic() > deadline:
            # An engine that has answered in time, and is running once more, has finished.
            if outcome.rows is None:
                outcome.status = "out of time"
            break


def _explain(outcome: Outcome, errors: str, code: int | None) -> None:
    said = [line.strip() for line in errors.splitlines() if line.strip()]
    if any(word in errors.lower() for word in MEMORY_WORDS):
        outcome.status = "out of memory"
    outcome.message = said[-1] if said else f"ended with code {code} and said nothing"


def _limit_this_process(n_bytes: int) -> None:
    if sys.platform == "linux":  # elsewhere the limit is missing or ignored
        resource.setrlimit(resource.RLIMIT_DATA, (n_bytes, n_bytes))


def _tree(pid: int) -> list[psutil.Process]:
    try:
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _resident_bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def _read_lines(stream: IO[str] | None, lines: queue.Queue[str | None]) -> None:
    for line in stream or ():
        lines.put(line)
    lines.put(None)


def _read_all(stream: IO[str] | None, texts: list[str]) -> None:
    for text in stream or ():
        texts.append(text)
