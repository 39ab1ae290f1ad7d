"""Single rows out of Parquet pages, beside Arrow's reader, which decodes whole columns.

    python benchmarks/pages.py FILE [COLUMN ...]

Nanoseconds for each row of the row group, least of many turns: Arrow's reader and `take` of the rows,
and the page reader, for shares of rows that lie anywhere and for the same in one stretch. Columns in
dictionaries are read as codes, too, all rows of them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from eddies.sources.pages import ColumnChunk, Layout, PageColumn, PageScratch, layout_of
from eddies.sources.ranges import leaf_by_name

SHARES = (0.001, 0.01, 0.05, 0.2, 0.5, 1.0)
TURNS = 15
MOST_GROUPS = 4


def main(path: str, names: list[str]) -> None:
    """Print a line for each column."""
    opened = parquet.ParquetFile(path, memory_map=True)
    content = np.frombuffer(pa.memory_map(path).read_buffer(), dtype=np.uint8)
    scratch = PageScratch()
    footer = opened.metadata
    leaves = leaf_by_name(footer.schema)
    rng = np.random.default_rng(0)
    groups = range(min(MOST_GROUPS, footer.num_row_groups))
    sizes = [footer.row_group(g).num_rows for g in groups]
    heads = ["column", "arrow", *(f"{share:.1%}" for share in SHARES), "1% near", "codes", "words"]
    print("".join(head.rjust(9) for head in heads).replace("   column", "column".ljust(16), 1))
    for name in names or list(leaves):
        layout = layout_of(footer.schema.column(leaves[name]), opened.schema_arrow.field(name).type)
        if layout is None:
            continue

        def column(group: int, name: str = name, layout: Layout = layout) -> PageColumn | None:
            described = footer.row_group(group)
            leaf = leaves[name]
            chunk = ColumnChunk.open(
                content, described.column(leaf), described.num_rows, layout.is_optional, scratch
            )
            return None if chunk is None else PageColumn(name, chunk, layout)

        first = column(0)
        if first is None:
            print(name.ljust(16), "is left to Arrow")
            continue
        wanted = [
            [np.flatnonzero(rng.random(n) < share).astype(np.int32) for n in sizes]
            for share in SHARES
        ]
        wanted.append([np.arange(n // 2, n // 2 + n // 100, dtype=np.int32) for n in sizes])
        works: list[Callable[[], object]] = [
            lambda name=name: [opened.read_row_group(g, [name], use_threads=False) for g in groups],
            *(
                lambda chosen=chosen: [column(g).rows(chosen[g]) for g in groups]
                for chosen in wanted
            ),
        ]
        if first.chunk.is_coded:
            works.append(
                lambda: [column(g).coded(np.arange(sizes[g], dtype=np.int32)) for g in groups]
            )
        figures = [f"{ns / sum(sizes):9.1f}" for ns in least(works)]
        if not first.chunk.is_coded:
            figures.append("-".rjust(9))
        print(name.ljust(16) + "".join(figures) + f"{first.chunk.n_words:9d}")


def least(works: list[Callable[[], object]]) -> list[float]:
    """The shortest time of each, in ns; they take turns."""
    best = [float("inf")] * len(works)
    for _ in range(TURNS):
        for number, work in enumerate(works):
            start = time.perf_counter_ns()
            work()
            best[number] = min(best[number], time.perf_counter_ns() - start)
    return best


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
