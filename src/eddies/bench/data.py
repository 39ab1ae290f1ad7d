"""The benchmark's tables: generated, seeded, in memory, as Arrow.

Every generator takes `scale`: 1.0 is the size the claims are made for; tests take much less. Keys
are scattered over their domain, so that no engine gains from dense or sorted keys by chance.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = [
    "STAR_HIT_RATES",
    "Tables",
    "chain",
    "graph",
    "shifting_star",
    "skewed_chain",
    "skewed_pair",
    "star",
    "star_with_rates",
    "streams",
    "two_dimensions",
    "two_text_dimensions",
]

Tables = dict[str, pa.Table]
Ints = npt.NDArray[np.int64]

SEED = 0
FACT_ROWS = 10_000_000
DIMENSION_ROWS = 1_000_000
STREAM_ROWS = 5_000_000
STREAM_FAN_OUT = 2
GRAPH_EDGES = 1_000_000
NODES_PER_EDGE = 0.1
# Two-edge paths are 46 times the edges, and the largest hub has 2 400 edges of 1 M each way.
GRAPH_SKEW = 0.55
SKEWED_ROWS = 500_000
SKEWED_KEYS = 100_000
# One row in a hundred has the most frequent key; a pair of sources has 150 results for each row.
KEY_SKEW = 0.7
CHAIN_LENGTH = 12
CHAIN_ROWS = 100_000
STAR_HIT_RATES = (0.9, 0.5, 0.2, 0.05)
TEXT_KEY_BYTES = 13
# A prime, so that keys of consecutive dimension rows are far apart.
KEY_STRIDE = 1_000_003


def two_dimensions(scale: float = 1.0) -> Tables:
    """A fact table and two dimensions; each key of a fact row is found every other time."""
    rng, n_fact, n_dimension = _sizes(scale)
    keys = [rng.integers(0, 2 * n_dimension, n_fact) for _ in range(2)]
    tables = {"f": pa.table({"k0": keys[0], "k1": keys[1], "v": _values(rng, n_fact)})}
    for name in ("d0", "d1"):
        wanted = rng.permutation(2 * n_dimension)[:n_dimension]
        tables[name] = pa.table({"k": wanted, "v": _values(rng, n_dimension)})
    return tables


def two_text_dimensions(scale: float = 1.0) -> Tables:
    """`two_dimensions` with every key spelled as text of 13 bytes."""
    tables = two_dimensions(scale)
    spelled = _spell(2 * tables["d0"].num_rows)
    for name, table in tables.items():
        columns = {
            column: table[column] if column == "v" else _text(spelled, table[column].to_numpy())
            for column in table.column_names
        }
        tables[name] = pa.table(columns)
    return tables


def star(scale: float = 1.0) -> Tables:
    """A fact table and four dimensions with the hit rates `STAR_HIT_RATES`."""
    return star_with_rates(scale, STAR_HIT_RATES, STAR_HIT_RATES)


def shifting_star(scale: float = 1.0) -> Tables:
    """A star whose hit rates are reversed in the second half of the fact table."""
    return star_with_rates(scale, STAR_HIT_RATES, STAR_HIT_RATES[::-1])


def streams(scale: float = 1.0) -> Tables:
    """Two sources in random order; every row matches two of the other."""
    rng = np.random.default_rng(SEED)
    n_keys = _scaled(STREAM_ROWS, scale) // STREAM_FAN_OUT
    keys = np.repeat(np.arange(n_keys) * np.int64(KEY_STRIDE), STREAM_FAN_OUT)
    return {
        name: pa.table({"k": rng.permutation(keys), "v": _values(rng, len(keys))})
        for name in ("r", "s")
    }


def skewed_pair(scale: float = 1.0) -> Tables:
    """Two sources with the same few keys very often: a hundred and more results for each row."""
    rng = np.random.default_rng(SEED)
    n_rows, n_keys = _scaled(SKEWED_ROWS, scale), _scaled(SKEWED_KEYS, scale)
    return {
        name: pa.table({"k": _skewed(rng, n_keys, n_rows), "v": _values(rng, n_rows)})
        for name in ("r", "s")
    }


def skewed_chain(scale: float = 1.0) -> Tables:
    """`r` and `s` as in `skewed_pair`; `t` keeps a twentieth of `s` by another column."""
    rng = np.random.default_rng(SEED)
    n_rows, n_keys = _scaled(SKEWED_ROWS, scale), _scaled(SKEWED_KEYS, scale)
    n_kept = max(1, n_keys // 20)
    return {
        "r": pa.table({"k": _skewed(rng, n_keys, n_rows), "v": _values(rng, n_rows)}),
        "s": pa.table(
            {
                "k": _skewed(rng, n_keys, n_rows),
                "j": rng.integers(0, n_keys, n_rows) * np.int64(KEY_STRIDE),
                "v": _values(rng, n_rows),
            }
        ),
        "t": pa.table(
            {
                "j": rng.permutation(n_keys)[:n_kept] * np.int64(KEY_STRIDE),
                "v": _values(rng, n_kept),
            }
        ),
    }


def graph(scale: float = 1.0) -> Tables:
    """Distinct directed edges between nodes whose degrees, in and out, follow a Zipf-like law."""
    rng = np.random.default_rng(SEED)
    n_edges = _scaled(GRAPH_EDGES, scale)
    n_nodes = max(8, int(n_edges * NODES_PER_EDGE))
    weights = np.arange(1, n_nodes + 1) ** -GRAPH_SKEW
    cumulated = np.cumsum(weights) / weights.sum()
    names = rng.permutation(n_nodes) * np.int64(KEY_STRIDE)
    ends = np.searchsorted(cumulated, rng.random((2, 2 * n_edges)))
    ends = np.minimum(ends, n_nodes - 1)  # rounding may leave the last sum below 1
    edges = rng.permutation(np.unique(ends[0] * np.int64(n_nodes) + ends[1]))[:n_edges]
    a, b = names[edges // n_nodes], names[edges % n_nodes]
    return {"e": pa.table({"a": a, "b": b, "v": _values(rng, len(edges))})}


def chain(scale: float = 1.0) -> Tables:
    """Twelve tables; a row of one matches one of the next on average, some none, some several."""
    rng = np.random.default_rng(SEED)
    n_rows = _scaled(CHAIN_ROWS, scale)
    return {
        f"t{link}": pa.table(
            {
                "a": rng.integers(0, n_rows, n_rows) * KEY_STRIDE,
                "b": rng.integers(0, n_rows, n_rows) * KEY_STRIDE,
                "v": _values(rng, n_rows),
            }
        )
        for link in range(CHAIN_LENGTH)
    }


def star_with_rates(scale: float, before: Sequence[float], after: Sequence[float]) -> Tables:
    """A fact table and a dimension for each hit rate; `after` holds in its second half."""
    rng, n_fact, n_dimension = _sizes(scale)
    is_before = np.arange(n_fact) < n_fact // 2
    fact: dict[str, Ints] = {}
    dimensions: Tables = {}
    for number, (rate_before, rate_after) in enumerate(zip(before, after, strict=True)):
        scattered = rng.permutation(4 * n_dimension) * np.int64(KEY_STRIDE)
        present, absent = scattered[:n_dimension], scattered[n_dimension : 2 * n_dimension]
        is_hit = rng.random(n_fact) < np.where(is_before, rate_before, rate_after)
        chosen = rng.integers(0, n_dimension, n_fact)
        fact[f"k{number}"] = np.where(is_hit, present[chosen], absent[chosen])
        dimensions[f"d{number}"] = pa.table(
            {"k": np.ascontiguousarray(present), "v": _values(rng, n_dimension)}
        )
    return {"f": pa.table({**fact, "v": _values(rng, n_fact)}), **dimensions}


def _skewed(rng: np.random.Generator, n_keys: int, n_rows: int) -> Ints:
    """Keys whose frequencies follow a Zipf-like law; the most frequent are the same every time."""
    cumulated = np.cumsum(np.arange(1, n_keys + 1) ** -KEY_SKEW)
    ranks = np.searchsorted(cumulated / cumulated[-1], rng.random(n_rows))
    return np.minimum(ranks, n_keys - 1) * np.int64(KEY_STRIDE)


def _sizes(scale: float) -> tuple[np.random.Generator, int, int]:
    n_fact, n_dimension = _scaled(FACT_ROWS, scale), _scaled(DIMENSION_ROWS, scale)
    return np.random.default_rng(SEED), n_fact, n_dimension


def _scaled(n_rows: int, scale: float) -> int:
    return max(10, round(n_rows * scale))


def _values(rng: np.random.Generator, n_rows: int) -> Ints:
    return rng.integers(0, 1000, n_rows)


def _spell(n_keys: int) -> npt.NDArray[np.uint8]:
    """`key` and ten digits for every number below `n_keys`, one row of bytes each."""
    spelled = np.empty((n_keys, TEXT_KEY_BYTES), np.uint8)
    spelled[:, :3] = np.frombuffer(b"key", np.uint8)
    rest = np.arange(n_keys)
    for place in range(TEXT_KEY_BYTES - 1, 2, -1):
        rest, digit = np.divmod(rest, 10)
        spelled[:, place] = digit + ord("0")
    return spelled


def _text(spelled: npt.NDArray[np.uint8], numbers: Ints) -> pa.Array:
    text = np.ascontiguousarray(spelled[numbers]).reshape(-1)
    offsets = np.arange(len(numbers) + 1, dtype=np.int32) * np.int32(TEXT_KEY_BYTES)
    return pa.StringArray.from_buffers(len(numbers), pa.py_buffer(offsets), pa.py_buffer(text))
