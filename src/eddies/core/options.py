"""Everything that can be set about one query, as one frozen fact, checked when it is made."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from eddies.core.policies import POLICIES
from eddies.core.spill.flush_policies import FLUSH_POLICIES
from eddies.core.window import GivenWindow, WindowText, parse_windows
from eddies.errors import OptionError

__all__ = ["DEFAULT_BATCH_ROWS", "Options", "StateMode", "parse_bytes"]

DEFAULT_BATCH_ROWS = (
    262_144  # a step costs tens of microseconds; after selective steps few rows are left
)
MAX_BATCH_ROWS = 1 << 20

StateMode = Literal["auto", "stems", "stairs", "joins", "static"]
STATES = ("auto", "stems", "stairs", "joins", "static")
MigrationName = Literal["cost-aware", "greedy", "never"]
_MIGRATIONS = ("cost-aware", "greedy", "never")
StemName = Literal["hash", "list", "grace", "hybrid", "sort"]
_STEMS: tuple[StemName, ...] = ("hash", "list", "grace", "hybrid", "sort")
_UNITS = {"": 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}


def parse_bytes(text: str | int, name: str = "memory") -> int:
    """Bytes from "512MB", "1.5 GB" or a plain number; units are powers of 1024.

    >>> parse_bytes("64KB")
    65536
    """
    if isinstance(text, bool) or not isinstance(text, str | int):
        raise OptionError(
            f"{name} must be a size such as '512MB' or a number of bytes, not {text!r}"
        )
    if isinstance(text, int):
        n_bytes = text
    else:
        found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?I?B?)\s*", text.upper())
        if not found:
            raise OptionError(f"{name} {text!r} is not a size; write for example '512MB'")
        unit = found[2].replace("I", "")
        n_bytes = int(float(found[1]) * _UNITS[unit if unit in _UNITS else unit + "B"])
    if n_bytes <= 0:
        raise OptionError(f"{name} must be more than zero bytes, not {text!r}")
    return n_bytes


@dataclass(frozen=True, slots=True)
class Options:
    """How a query runs. No option but `window` changes the answer.

    policy            who routes; see `eddies.core.policies`.
    order             module names, for policy="static": earlier is preferred.
    state             what is kept: "stems" (base rows), "stairs" (also intermediate results, where they
                      pay, rewritten when that changes), "joins" (EddyJoins: whatever was routed to a
                      join stays there), "static" (symmetric hash joins in one `order`). All but "stems"
                      work along a spanning tree of the query and check what closes a cycle on the
                      matches. "auto" = "stems".
    migration         when state="stairs" is rewritten: "cost-aware" (if the rows to come will pay for
                      it), "greedy" (at once, at any price: the paper's), "never".
    memory            budget of the eddy, as bytes or text such as "512MB"; None: unlimited. Rows that
                      do not fit go to disk, intermediate results in joins are made again (see
                      docs/early-results.md); only an eddy with access methods raises when its state
                      exceeds it. Covered are stored rows, indexes, tuples in joins or waiting, and
                      rows read back; not answers of expensive predicates (a byte a stored row),
                      groups of an aggregation and results nobody has polled yet.
    batch_rows        most rows routed at once. The first batches of a relation are smaller, so that
                      decisions are soon made on experience.
    reoptimize_every  driver rows between two safe points at which decisions are renewed; batches are
                      cut to this size. None: as often as deciding stays below 2 % of the work, and
                      sooner when a module suddenly behaves differently.
    threads           threads that probe when nothing is stored any more: every source but the last is
                      complete, or that one, too, if it plays several roles. Until then, and under a
                      budget when rows are read back, one does everything. Not with state="joins".
    seed              of every random choice.
    cache             bytes of decoded columns of Parquet files that every Python worker of Spark keeps
                      for later queries on the same files, such as "1GB"; None: none.
    cells             how many eddies share one join on Spark; None: from the sizes of the inputs.
    trace_dir         folder in which every eddy on Spark leaves what it did; None: nowhere. All
                      executors and the driver must see it.
    checkpoint        directory in which a streaming query keeps its state: the same as the
                      checkpointLocation of its writeStream.
    rows_per_epoch    most rows that an epoch of an online query reads from its sources, all together;
                      None: 400,000. Fewer: results sooner; more: less overhead.
    spill_dir         where rows go that do not fit into `memory`; None: the system's temporary
                      directory. Each eddy makes a directory of its own there and removes it.
    flush_size        share of `memory` that one flush makes free, above 0 and at most 1.
    flush             which partitions a flush writes; see `eddies.core.spill.flush_policies`.
    partial           keep all rows, so that partial results can be had while a source stalls; see
                      `eddies.core.partial`.
    stem              how SteMs keep rows and when they give them back: "hash" (symmetric hash join),
                      "list" (a list that becomes a hash table), "grace" (held until the relation ends,
                      then by partition), "hybrid" (one part at once, the rest like "grace"), "sort"
                      (sorted runs, given back in order). With state="stems".
    prefer            a predicate on one source, as SQL text such as "c.country = 'PE'": results with
                      such rows come early. On the local host for sources with access methods.
    window            how far back sources of a streaming query are joined, by source name, such as
                      {"orders": "10 minutes", "items": ("sold_at", "30 seconds"), "t": "1000 rows"};
                      rows that no window reaches any more are forgotten. See docs/streaming.md.
    """

    policy: str = "auto"
    order: tuple[str, ...] = ()
    state: StateMode = "auto"
    migration: MigrationName = "cost-aware"
    memory: str | int | None = None
    batch_rows: int = DEFAULT_BATCH_ROWS
    reoptimize_every: int | None = None
    threads: int = 1
    seed: int = 0
    cache: str | int | None = None
    cells: int | None = None
    trace_dir: str | None = None
    checkpoint: str | None = None
    rows_per_epoch: int | None = None
    spill_dir: str | None = None
    flush_size: float = 0.2
    flush: str = "adaptive-global"
    partial: bool = False
    prefer: str | None = None
    stem: StemName = "hash"
    window: Mapping[str, WindowText] | None = None

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise OptionError(
                f"unknown policy {self.policy!r}; choose one of {', '.join(sorted(POLICIES))}"
            )
        if self.policy == "static" and not self.order:
            raise OptionError("policy='static' needs order=(...): module names, first one first")
        if self.state not in STATES:
            raise OptionError(f"unknown state {self.state!r}; choose one of {', '.join(STATES)}")
        if self.migration not in _MIGRATIONS:
            raise OptionError(
                f"unknown migration {self.migration!r}; choose one of {', '.join(_MIGRATIONS)}"
            )
        for name in ("batch_rows", "reoptimize_every", "threads", "cells", "rows_per_epoch"):
            value = getattr(self, name)
            if name in ("reoptimize_every", "cells", "rows_per_epoch") and value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise OptionError(f"{name} must be a whole number of at least 1, not {value!r}")
        if self.batch_rows > MAX_BATCH_ROWS:
            raise OptionError(f"batch_rows must be at most {MAX_BATCH_ROWS}, not {self.batch_rows}")
        if self.stem not in _STEMS:
            raise OptionError(f"unknown stem {self.stem!r}; choose one of {', '.join(_STEMS)}")
        if self.stem != "hash" and self.state not in ("auto", "stems"):
            raise OptionError(f"stem={self.stem!r} needs state='stems', not {self.state!r}")
        if self.stem in ("grace", "hybrid", "sort") and self.memory is not None:
            raise OptionError(f"stem={self.stem!r} does not spill; leave memory out")
        if self.memory is not None:
            parse_bytes(self.memory)
        if self.cache is not None:
            parse_bytes(self.cache, "cache")
        self._check_windows()
        if not 0 < self.flush_size <= 1:
            raise OptionError(f"flush_size must be above 0 and at most 1, not {self.flush_size!r}")
        if self.flush not in FLUSH_POLICIES:
            raise OptionError(
                f"unknown flush policy {self.flush!r}; choose one of {', '.join(FLUSH_POLICIES)}"
            )

    def _check_windows(self) -> None:
        if not self.windows:
            return
        by_rows = [name for name, window in self.windows.items() if window.unit == "rows"]
        if by_rows and self.memory is not None:
            raise OptionError(
                f"window of {by_rows[0]!r} counts rows, which is exact only while all of them are in "
                "memory; leave memory out, or use a window of time"
            )
        if self.stem not in ("hash", "list"):
            raise OptionError(f"stem={self.stem!r} cannot forget rows; leave it or window out")

    @property
    def windows(self) -> dict[str, GivenWindow]:
        """What `window` asks for, by source name."""
        return parse_windows(self.window or {})

    @property
    def memory_bytes(self) -> int | None:
        """The budget in bytes, or None."""
        return None if self.memory is None else parse_bytes(self.memory)

    @property
    def cache_bytes(self) -> int | None:
        """What a worker may keep of decoded columns, in bytes, or None."""
        return None if self.cache is None else parse_bytes(self.cache, "cache")
