"""Slow, obvious twins of the compiled kernels, written to be read.

Lists and dictionaries of Python, one row at a time. Kernels work in place; a twin returns
what the arrays should hold. The hash index has one twin for all its kernels: a dictionary from
words to rows, newest first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from eddies.core.kernels.bloom import PATTERNS

__all__ = [
    "Index",
    "bloom_of",
    "cheapest_way",
    "best_cut",
    "compact",
    "copy_bytes",
    "equal_keys",
    "expand_ranges",
    "gather",
    "has_pieces",
    "groups_of",
    "home_line",
    "is_same_text",
    "joined_size",
    "lightest_nodes",
    "mix_word",
    "n_equal_each",
    "n_equal_pairs",
    "offsets_of",
    "text_word",
    "totals_of",
]

_ALL = (1 << 64) - 1
_SEED, _STEP = 0xA0761D6478BD642F, 0xE7037ED1A0B428DB


def gather(values: Sequence[object], ids: Sequence[int]) -> list[object]:
    return [values[i] for i in ids]


def has_pieces(text: bytes, pieces: Sequence[bytes], at_begin: bool, at_end: bool) -> bool:
    """Whether `text` has all `pieces` in their order and apart; by trying every place for each."""
    if not pieces:
        return text == b"" or not (at_begin and at_end)
    first, rest = pieces[0], pieces[1:]
    places = [0] if at_begin else range(len(text) + 1)
    for place in places:
        after = text[place + len(first) :]
        if text[place : place + len(first)] != first:
            continue
        if rest and has_pieces(after, rest, False, at_end):
            return True
        if not rest and (after == b"" or not at_end):
            return True
    return False


def n_bits(values: Sequence[int]) -> int:
    """The least n such that all values lie between -(2 ** n) and 2 ** n - 1."""
    n = 0
    while not all(-(2**n) <= value < 2**n for value in values):
        n += 1
    return n


def compact(keep: Sequence[bool], pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    return [pair for pair, kept in zip(pairs, keep, strict=True) if kept]


def n_equal_pairs(few: Sequence[int], many: Sequence[int]) -> int:
    return sum(a == b for a in few for b in many)


def n_equal_each(few: Sequence[int], many: Sequence[int]) -> list[int]:
    return [sum(a == b for b in many) for a in few]


def best_cut(values: Sequence[int], costs: Sequence[Sequence[float]], fewest: int) -> float:
    """The least cost of two parts, rows with values up to one and above it, each at its best join."""
    found = [float("inf")]
    for value in values:
        parts = [
            [cost for v, cost in zip(values, costs, strict=True) if (v <= value) == is_left]
            for is_left in (True, False)
        ]
        if all(len(part) >= fewest for part in parts):
            found.append(sum(min(map(sum, zip(*part, strict=True))) for part in parts))
    return min(found)


def offsets_of(lengths: Sequence[int]) -> list[int]:
    return [sum(lengths[:i]) for i in range(len(lengths) + 1)]


def copy_bytes(strings: Sequence[bytes]) -> bytes:
    return b"".join(strings)


def _hash(word: int) -> int:
    word ^= word >> 32
    word = word * 0xD6E8FEB86659FD93 & _ALL
    word ^= word >> 29
    return word * 0x9E3779B97F4A7C15 & _ALL


def home_line(word: int, n_lines: int) -> int:
    """The line where a word wants to live: the top bits of its hash."""
    return _hash(word) >> (64 - (n_lines.bit_length() - 1))


def bloom_of(words: Sequence[int], n_words: int) -> list[int]:
    """A filter of `n_words` words in which each word has set the bits of its pattern in one of them."""
    bloom = [0] * n_words
    for word in words:
        h = (word ^ word >> 32) * 0x9E3779B97F4A7C15 & _ALL
        bloom[h >> (64 - (n_words.bit_length() - 1))] |= int(PATTERNS[h >> 30 & 1023])
    return bloom


def _fold(left: int, right: int) -> int:
    product = left * right
    return (product & _ALL) ^ (product >> 64)


def text_word(text: bytes) -> int:
    """Bytes and length of a short string; a hash with the top byte set of a longer one."""
    if len(text) <= 7:
        return len(text) << 56 | int.from_bytes(text, "little")
    word = _SEED ^ len(text)
    start = 0
    while start + 8 < len(text):
        word = _fold(word ^ int.from_bytes(text[start : start + 8], "little"), _STEP)
        start += 8
    word = _fold(word ^ int.from_bytes(text[-8:], "little"), _SEED)
    return word | 0xFF << 56


def is_same_text(left: bytes, right: bytes) -> bool:
    return left == right


def mix_word(into: int, word: int) -> int:
    into ^= into >> 32
    into = into * 0xD6E8FEB86659FD93 & _ALL
    into ^= into >> 32
    return _fold(into ^ _SEED, word ^ _STEP)


def equal_keys(left: Sequence[object], right: Sequence[object]) -> bool:
    """SQL's equality of two keys: NULL equals nothing, NaN equals NaN, zero has no sign."""
    for a, b in zip(left, right, strict=True):
        if a is None or b is None:
            return False
        if isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b):
            continue
        if a != b:
            return False
    return True


def expand_ranges(
    starts: Sequence[int], stops: Sequence[int], sequence: Sequence[int], limit: int
) -> list[tuple[int, int]]:
    pairs = []
    for j in range(len(starts)):
        for k in range(starts[j], stops[j]):
            if sequence[k] < limit:
                pairs.append((j, sequence[k]))
    return pairs


@dataclass
class Index:
    """Rows by word, newest first."""

    rows_by_word: dict[int, list[int]] = field(default_factory=dict)
    n_duplicates: int = 0

    def insert(self, words: Sequence[int], rows: Sequence[int]) -> None:
        for word, row in zip(words, rows, strict=True):
            known = self.rows_by_word.setdefault(word, [])
            self.n_duplicates += bool(known)
            known.insert(0, row)

    def newest(self, words: Sequence[int], limit: int | None = None) -> list[tuple[int, int]]:
        """For every word that has one, its newest row below `limit`."""
        matches = []
        for position, word in enumerate(words):
            rows = [r for r in self.rows_by_word.get(word, []) if limit is None or r < limit]
            if rows:
                matches.append((position, rows[0]))
        return matches

    def probe(self, words: Sequence[int], limit: int | None = None) -> list[tuple[int, int]]:
        """All matches below `limit`."""
        return [
            (position, row)
            for position, word in enumerate(words)
            for row in self.rows_by_word.get(word, [])
            if limit is None or row < limit
        ]


def groups_of(words: Sequence[int]) -> tuple[list[int], list[int]]:
    """The group of each row, numbered as they appear, and the first row of each group."""
    first_rows: dict[int, int] = {}
    for row, word in enumerate(words):
        first_rows.setdefault(word, row)
    numbers = {word: number for number, word in enumerate(first_rows)}
    return [numbers[word] for word in words], list(first_rows.values())


def totals_of(
    groups: Sequence[int],
    values: Sequence[int] | Sequence[float],
    valid: Sequence[int],
    n_groups: int,
    reduce: Callable[[list[int | float]], int | float],
) -> list[int | float | None]:
    """`reduce` over the valid values of each group, None where there is none."""
    chosen: list[list[int | float]] = [[] for _ in range(n_groups)]
    for row, group in enumerate(groups):
        if not valid or valid[row]:
            chosen[group].append(values[row])
    return [reduce(members) if members else None for members in chosen]


def joined_size(mask: int, rows: Sequence[float], edges: Sequence[tuple[int, int, float]]) -> float:
    """Tuples of the join of the sources in `mask`; an edge is two sources and a selectivity."""
    size = math.prod(n for source, n in enumerate(rows) if mask >> source & 1)
    return size * math.prod(s for a, b, s in edges if mask >> a & 1 and mask >> b & 1)


def joined_from(
    source: int, target: int, rows: Sequence[float], joins: Sequence[tuple[int, int, float]]
) -> float:
    """Tuples handled to join `source` with all of `target`, fewest tuples first, and to store them."""
    mask, cost = 1 << source, 0.0
    while mask != target:
        ends = [1 << a | 1 << b for a, b, _ in joins]
        grown = {mask | e for e in ends if e & mask and e & ~mask and e & ~target == 0}
        after = min(grown, key=lambda m: (joined_size(m, rows, joins), m))
        cost += joined_size(mask, rows, joins) + joined_size(after, rows, joins)
        mask = after
    return cost + joined_size(target, rows, joins)


def cheapest_way(
    mask: int,
    rows: Sequence[float],
    edges: Sequence[tuple[int, int, float]],
    forms: Sequence[tuple[int, int, int]],
) -> tuple[float, set[tuple[int, int]]]:
    """Tuples handled from `mask` to the end for one tuple, and the views probed on the way. A form is
    (source, join, mask).
    """
    if mask == (1 << len(rows)) - 1:
        return 0.0, set()
    held = {(source, join): form for source, join, form in forms}
    around = min(
        (f for f in forms if mask & ~f[2] == 0), key=lambda f: f[2].bit_count(), default=None
    )
    ways = []
    for join, (a, b, selectivity) in enumerate(edges):
        if (mask >> a & 1) == (mask >> b & 1):
            continue
        inside, outside = (a, b) if mask >> a & 1 else (b, a)
        if around is not None and around[2] == mask and around[1] != join:
            continue
        if around is not None and around[2] != mask and not around[2] >> outside & 1:
            continue
        met = held.get((outside, join), 1 << outside)
        n_matches = joined_size(met, rows, edges) * selectivity
        cost, views = cheapest_way(mask | met, rows, edges, forms)
        is_stored = held.get((inside, join)) == mask
        if (outside, join) not in held:
            views = views | {(outside, join)}
        ways.append((1.0 + is_stored + n_matches * (1.0 + cost), views))
    return min(ways, key=lambda way: way[0])


def lightest_nodes(
    mask: int, edges: Sequence[tuple[int, int, float]], weight: dict[int, float]
) -> float:
    """The least weight of the inner nodes of a join tree over `mask`, `mask` among them."""
    if mask.bit_count() == 1:
        return 0.0
    inside = [(a, b) for a, b, _ in edges if mask >> a & 1 and mask >> b & 1]
    found = []
    for cut in inside:
        left, grown = 0, 1 << cut[0]
        while grown != left:
            left = grown
            for a, b in inside:
                if (a, b) != cut and (left >> a & 1 or left >> b & 1):
                    grown |= 1 << a | 1 << b
        parts = (left, mask & ~left)
        found.append(sum(lightest_nodes(part, edges, weight) for part in parts))
    return min(found) + weight.get(mask, 0.0)


def add_rows(totals: list[int], values: list[int]) -> list[int] | None:
    """Sums row by row; None if one does not fit into 64 bits."""
    added = [total + value for total, value in zip(totals, values, strict=True)]
    return added if all(-(2**63) <= total < 2**63 for total in added) else None


def packed_runs(values: list[int], width: int) -> bytes:
    """Parquet's runs of whole numbers of `width` bits: eight or more in a row that are equal are
    repeated, others are packed in groups of eight.
    """
    content = b""
    at = 0
    waiting: list[int] = []
    while at < len(values):
        n_equal = 1
        while at + n_equal < len(values) and values[at + n_equal] == values[at]:
            n_equal += 1
        if n_equal >= 8 and len(waiting) % 8 == 0:
            content += _packed(waiting, width) + _varint(n_equal << 1)
            content += values[at].to_bytes((width + 7) // 8, "little")
            waiting = []
            at += n_equal
        else:
            waiting.append(values[at])
            at += 1
    return content + _packed(waiting, width)


def _packed(values: list[int], width: int) -> bytes:
    if not values:
        return b""
    n_groups = (len(values) + 7) // 8
    bits = sum(value << (width * place) for place, value in enumerate(values))
    return _varint(n_groups << 1 | 1) + bits.to_bytes(n_groups * width, "little")


def _varint(number: int) -> bytes:
    content = b""
    while number >= 128:
        content += bytes([number & 127 | 128])
        number >>= 7
    return content + bytes([number])


def unpacked_runs(content: bytes, width: int, n: int) -> list[int]:
    """The first `n` numbers of runs."""
    values: list[int] = []
    at = 0
    while len(values) < n:
        header = shift = 0
        while True:
            byte = content[at]
            at += 1
            header |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        if header & 1:
            n_bytes = (header >> 1) * width
            bits = int.from_bytes(content[at : at + n_bytes], "little")
            for place in range((header >> 1) * 8):
                values.append(bits >> (width * place) & ((1 << width) - 1))
        else:
            n_bytes = (width + 7) // 8
            value = int.from_bytes(content[at : at + n_bytes], "little")
            values += [value] * (header >> 1)
        at += n_bytes
    return values[:n]
