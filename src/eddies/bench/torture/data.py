"""Tables of the torture shapes: generated, seeded, small on disk, and easy to join badly.

Every generator takes `scale`: 1.0 is the size at which a good order takes seconds on two cores.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddies.bench.data import Tables

__all__ = [
    "CHAIN_JOINS",
    "exploding_pair",
    "hub_graph",
    "intervals",
    "many_to_many_chain",
    "one_row_in_the_middle",
    "opaque",
    "shifting_fan_out",
    "small_hub_graph",
    "sum_of_two",
]

Ints = npt.NDArray[np.int64]

SEED = 7
# Keys are spread, so that no engine gains from dense ones.
KEY_STRIDE = 1_000_003
CHAIN_JOINS = 8
LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", np.uint8)


def many_to_many_chain(scale: float) -> Tables:
    """Nine sources; a row matches ten of the next, but none of the last: the answer is empty."""
    rng = np.random.default_rng(SEED)
    n_rows, fan_out = _scaled(2_000_000, scale), 10
    n_keys = max(2, n_rows // fan_out)
    tables = {
        f"t{link}": pa.table(
            {
                "a": 2 * rng.integers(0, n_keys, n_rows) * KEY_STRIDE,
                "b": 2 * rng.integers(0, n_keys, n_rows) * KEY_STRIDE,
                "v": _values(rng, n_rows),
            }
        )
        for link in range(CHAIN_JOINS + 1)
    }
    last = f"t{CHAIN_JOINS}"
    # Odd multiples among even ones: nothing matches, and smallest and largest key tell nothing.
    missed = (2 * rng.integers(0, n_keys, n_rows) + 1) * KEY_STRIDE
    tables[last] = tables[last].set_column(0, "a", pa.array(missed))
    return tables


def shifting_fan_out(scale: float) -> Tables:
    """In the first half of `f`, every match in `a` and few in `b` pass; in the second, reversed.

    Keys always match twenty rows on both sides; what passes depends on the second column of the
    join condition, which no filter made of keys can tell.
    """
    rng = np.random.default_rng(SEED)
    n_fact, n_keys, fan_out, pass_rate = (
        _scaled(2_000_000, scale),
        _scaled(20_000, scale),
        20,
        0.002,
    )
    limit = 1_000_000
    is_first = np.arange(n_fact) < n_fact // 2
    strict = rng.integers(int(limit * (1 - 2 * pass_rate)), limit, n_fact)
    fact = {
        "k1": rng.integers(0, n_keys, n_fact) * KEY_STRIDE,
        "k2": rng.integers(0, n_keys, n_fact) * KEY_STRIDE,
        "t1": np.where(is_first, -1, strict),
        "t2": np.where(is_first, strict, -1),
        "v": _values(rng, n_fact),
    }
    keys = np.repeat(np.arange(n_keys, dtype=np.int64) * KEY_STRIDE, fan_out)
    sides = {
        name: pa.table(
            {
                "k": rng.permutation(keys),
                "t": rng.integers(0, limit, len(keys)),
                "v": _values(rng, len(keys)),
            }
        )
        for name in ("a", "b")
    }
    return {"f": pa.table(fact), **sides}


def hub_graph(scale: float) -> Tables:
    """500 K edges, and two hubs with 12 K edges each way: most paths of two edges run through one."""
    return _graph(scale, n_edges=500_000, n_nodes=100_000, hub_degree=12_000)


def small_hub_graph(scale: float) -> Tables:
    """100 K edges, and two hubs with 3 000 edges each way."""
    return _graph(scale, n_edges=100_000, n_nodes=50_000, hub_degree=3_000)


def sum_of_two(scale: float) -> Tables:
    """`a.x` is the sum of some `b.y` and some `c.z` in one row of four."""
    rng = np.random.default_rng(SEED)
    n_rows, n_small = _scaled(500_000, scale), _scaled(4_000, scale)
    y = rng.integers(0, 10**12, n_small)
    z = rng.integers(0, 10**12, n_small)
    sums = y[rng.integers(0, n_small, n_rows)] + z[rng.integers(0, n_small, n_rows)]
    x = np.where(rng.random(n_rows) < 0.25, sums, rng.integers(0, 2 * 10**12, n_rows))
    return {
        "a": pa.table({"x": x, "v": _values(rng, n_rows)}),
        "b": pa.table({"y": y, "v": _values(rng, n_small)}),
        "c": pa.table({"z": z, "v": _values(rng, n_small)}),
    }


def opaque(scale: float) -> Tables:
    """Text and signed numbers that match only after a function was applied to both sides.

    The first pair in the text has hundreds of matches for each row; the third source is small after
    its selection, which an optimizer cannot know.
    """
    rng = np.random.default_rng(SEED)
    n_rows = _scaled(200_000, scale)
    n_groups = max(2, n_rows // 700)
    codes = np.array([f"{number:05d}" for number in range(n_groups)])

    def wrapped(rows: Ints) -> pa.Array:
        heads = rng.integers(10, 99, len(rows)).astype("U2")
        tails = rng.integers(0, 10**6, len(rows)).astype("U6")
        return pa.array(np.char.add(np.char.add(heads, codes[rows]), tails))

    names = np.array([_word(rng, 8) for _ in range(n_rows)])
    mixed = np.where(rng.random(n_rows) < 0.5, np.char.upper(names), np.char.capitalize(names))
    chosen = rng.integers(0, n_rows, n_rows)
    numbers = rng.permutation(n_rows) + 1
    sign = np.where(rng.random((2, n_rows)) < 0.5, -1, 1)
    return {
        "u": pa.table({"s": wrapped(rng.integers(0, n_groups, n_rows)), "v": _values(rng, n_rows)}),
        "w": pa.table(
            {
                "s": wrapped(rng.integers(0, n_groups, n_rows)),
                "t": pa.array(mixed[chosen]),
                "v": _values(rng, n_rows),
            }
        ),
        "x": pa.table({"t": pa.array(names), "z": numbers * sign[0], "v": _values(rng, n_rows)}),
        "y": pa.table({"z": rng.permutation(numbers) * sign[1], "v": _values(rng, n_rows)}),
    }


def one_row_in_the_middle(scale: float) -> Tables:
    """A chain of five with thirty matches at every step, and one row in its middle."""
    rng = np.random.default_rng(SEED)
    n_rows, fan_out = _scaled(1_000_000, scale), 30
    n_keys = max(2, n_rows // fan_out)

    def link() -> pa.Table:
        return pa.table(
            {
                "a": rng.integers(0, n_keys, n_rows) * KEY_STRIDE,
                "b": rng.integers(0, n_keys, n_rows) * KEY_STRIDE,
                "v": _values(rng, n_rows),
            }
        )

    middle = pa.table({"a": [KEY_STRIDE], "b": [KEY_STRIDE], "v": [1]})
    return {"l0": link(), "l1": link(), "l2": link(), "one": middle, "r0": link()}


def intervals(scale: float) -> Tables:
    """Intervals on a line, each overlapping some twenty that begin after it."""
    rng = np.random.default_rng(SEED)
    n_rows = _scaled(500_000, scale)
    start = rng.permutation(n_rows * 100)[:n_rows].astype(np.int64)
    finish = start + rng.integers(1, 4_000, n_rows)
    return {"i": pa.table({"start": start, "finish": finish, "v": _values(rng, n_rows)})}


def exploding_pair(scale: float) -> Tables:
    """Two sources with a thousand matches for each row."""
    rng = np.random.default_rng(SEED)
    n_rows = _scaled(300_000, scale)
    n_keys = max(2, n_rows // 1000)
    return {
        "r": pa.table(
            {
                "k": rng.integers(0, n_keys, n_rows) * KEY_STRIDE,
                "g": rng.integers(0, 50, n_rows),
                "v": _values(rng, n_rows),
            }
        ),
        "s": pa.table(
            {"k": rng.integers(0, n_keys, n_rows) * KEY_STRIDE, "v": _values(rng, n_rows)}
        ),
    }


def _graph(scale: float, n_edges: int, n_nodes: int, hub_degree: int) -> Tables:
    rng = np.random.default_rng(SEED)
    n_edges, n_nodes = _scaled(n_edges, scale), _scaled(n_nodes, scale)
    n_at_hub = min(_scaled(hub_degree, scale), n_nodes // 2)
    ends = [rng.integers(0, n_nodes, (2, n_edges))]
    for hub in (0, 1):
        hubs = np.full(n_at_hub, hub)
        ends.append(np.stack([rng.permutation(n_nodes)[:n_at_hub], hubs]))
        ends.append(np.stack([hubs, rng.permutation(n_nodes)[:n_at_hub]]))
    distinct = rng.permutation(np.unique(np.concatenate(ends, axis=1), axis=1), axis=1)
    return {
        "e": pa.table(
            {
                "a": distinct[0] * KEY_STRIDE,
                "b": distinct[1] * KEY_STRIDE,
                "v": _values(rng, distinct.shape[1]),
            }
        )
    }


def _word(rng: np.random.Generator, n_letters: int) -> str:
    return LETTERS[rng.integers(0, len(LETTERS), n_letters)].tobytes().decode()


def _scaled(n_rows: int, scale: float) -> int:
    return max(10, round(n_rows * scale))


def _values(rng: np.random.Generator, n_rows: int) -> Ints:
    return rng.integers(0, 1000, n_rows)
