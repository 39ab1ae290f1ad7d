"""Kernels that read Parquet pages, beside plain twins."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from eddies.core.kernels.page_headers import HEADER_FIELDS, NO_HEADER, page_headers
from eddies.core.kernels.page_values import SOUND, find_codes, find_texts, find_values
from eddies.core.kernels.snappy import unpack_snappy
from tests.support.naive import packed_runs, unpacked_runs

WIDTHS = [0, 1, 3, 8, 13, 17, 32]


def vector(content: bytes) -> np.ndarray:
    return np.frombuffer(content, dtype=np.uint8)


def table(*pages: tuple[np.ndarray, int, int, int], n_rows: int = 0) -> np.ndarray:
    """Of pages: bytes, wanted values from and to, first value; each of so many rows."""
    rows = [(b.ctypes.data, b.shape[0], *fields, n_rows) for b, *fields in pages]
    return np.array(rows, dtype=np.int64).ravel()


def numbers(rng: np.random.Generator, n: int, width: int) -> list[int]:
    """Some in a row that are equal, some that are not."""
    found: list[int] = []
    while len(found) < n:
        value = int(rng.integers(0, 1 << width))
        found += [value] * int(rng.choice([1, 1, 1, 20]))
    return found[:n]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("n", [1, 8, 9, 200])
def test_codes_are_those_of_the_twin(n: int, width: int) -> None:
    rng = np.random.default_rng(n + width)
    values = [numbers(rng, n, width), numbers(rng, n, width)]
    contents = [bytes([width]) + packed_runs(v, width) for v in values]
    for content, expected in zip(contents, values, strict=True):
        assert unpacked_runs(content[1:], width, n) == expected
    for share in (0.1, 1.0):
        wanted = np.flatnonzero(rng.random(2 * n) < share).astype(np.int32)
        split = int(np.searchsorted(wanted, n))
        first, second = map(vector, contents)
        pages = table((first, 0, split, 0), (second, split, wanted.shape[0], n))
        codes = np.empty(wanted.shape[0], dtype=np.int32)
        assert find_codes(pages, wanted, 1 << 33, codes) == SOUND
        both = values[0] + values[1]
        assert codes.astype(np.uint32).tolist() == [both[w] for w in wanted.tolist()]


def test_codes_beyond_the_dictionary_or_the_page_are_damage() -> None:
    content = bytes([3]) + packed_runs([1, 2, 3, 4, 5, 6, 7, 0], 3)
    wanted = np.arange(8, dtype=np.int32)
    codes = np.empty(8, dtype=np.int32)
    assert find_codes(table((vector(content), 0, 8, 0)), wanted, 8, codes) == SOUND
    assert find_codes(table((vector(content), 0, 8, 0)), wanted, 7, codes) == 0
    for n_bytes in range(len(content)):
        cut = vector(content[:n_bytes])
        assert find_codes(table((cut, 0, 8, 0)), wanted, 8, codes) == 0
    too_wide = vector(bytes([33]) + content[1:])
    assert find_codes(table((too_wide, 0, 8, 0)), wanted, 8, codes) == 0


@pytest.mark.parametrize(
    "runs",
    [
        [0, 5, 16, 5],  # no value repeated
        [1, 16, 5],  # no values packed
        [16, 8 | 5],  # a value of more than three bits
    ],
)
def test_runs_of_codes_that_nobody_writes_are_damage(runs: list[int]) -> None:
    wanted, codes = np.arange(8, dtype=np.int32), np.empty(8, dtype=np.int32)
    sound, damaged = vector(bytes([3, 16, 5])), vector(bytes([3, *runs]))
    assert find_codes(table((sound, 0, 8, 0)), wanted, 8, codes) == SOUND
    assert find_codes(table((damaged, 0, 8, 0)), wanted, 8, codes) == 0


@pytest.mark.parametrize(
    "runs",
    [
        [0, 1, 16, 1],  # no level repeated
        [1, 16, 1],  # no levels packed
        [16, 2],  # a level beyond the greatest
        [5, 255],  # of more rows than the page has, and they are not there
    ],
)
def test_runs_of_levels_that_nobody_writes_are_damage(runs: list[int]) -> None:
    wanted, valid = np.arange(8, dtype=np.int32), np.empty(8, dtype=np.uint8)
    places, ends = np.empty(9, dtype=np.int32), np.empty(2, dtype=np.int64)
    for sound in ([16, 1], [3, 255], [8, 1, 3, 15], [7, 255, 0, 0], [65, *[255] * 32]):
        content = vector(bytes(sound))
        pages = table((content, 0, 8, 0), n_rows=8)
        assert find_values(pages, wanted, valid, places, ends) == SOUND
        assert valid.all()
    content = vector(bytes(runs))
    assert find_values(table((content, 0, 8, 0), n_rows=8), wanted, valid, places, ends) == 0


@pytest.mark.parametrize("null_share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("share", [0.05, 1.0])
def test_values_are_counted_past_nulls(null_share: float, share: float) -> None:
    rng = np.random.default_rng(5)
    levels = [int(v) for v in np.repeat(rng.random(60) >= null_share, rng.integers(1, 12, 60))]
    content = vector(packed_runs(levels, 1))
    wanted = np.flatnonzero(rng.random(len(levels)) < share).astype(np.int32)
    n = wanted.shape[0]
    valid, places = np.empty(n, dtype=np.uint8), np.empty(n + 1, dtype=np.int32)
    ends = np.empty(2, dtype=np.int64)
    pages = table((content, 0, n, 0), n_rows=len(levels))
    assert find_values(pages, wanted, valid, places, ends) == SOUND
    assert valid.tolist() == [levels[w] for w in wanted]
    expected = [sum(levels[:w]) for w in wanted.tolist() if levels[w]]
    assert places[: ends[1]].tolist() == expected
    for n_bytes in range(content.shape[0] // 2):
        cut = table((content[:n_bytes], 0, n, 0), n_rows=len(levels))
        assert find_values(cut, wanted, valid, places, ends) == 0


def test_texts_are_found_where_they_lie() -> None:
    texts = [b"", b"a", b"bcd" * 9, "ü".encode(), b"", b"last"]
    content = vector(b"".join(len(t).to_bytes(4, "little") + t for t in texts))
    for wanted in ([0], [1, 2], [5], [0, 1, 2, 3, 4, 5]):
        rows = np.array(wanted, dtype=np.int32)
        places, lengths = np.empty(len(rows), dtype=np.int64), np.empty(len(rows), dtype=np.int32)
        pages = table((content, 0, len(rows), 0))
        assert find_texts(pages, rows, places, lengths) == SOUND
        offsets = (places - content.ctypes.data).tolist()
        found = [
            content[o : o + n].tobytes() for o, n in zip(offsets, lengths.tolist(), strict=True)
        ]
        assert found == [texts[w] for w in wanted]
        cut = table((content[: offsets[-1] + lengths[-1] - 1], 0, len(rows), 0))
        assert find_texts(cut, rows, places, lengths) == 0


def test_headers_of_pages() -> None:
    # A dictionary page of 3 values in 5 bytes, then a data page with statistics in 4 bytes.
    dictionary = bytes([0x15, 4, 0x15, 20, 0x15, 10, 0x4C, 0x15, 6, 0x15, 4, 0x11, 0, 0])
    statistics = bytes([0x18, 2, 9, 9, 0x26, 8, 0])
    inner = bytes([0x15, 0x80, 2, 0x15, 16, 0x15, 6, 0x15, 6, 0x1C]) + statistics + bytes(1)
    data = bytes([0x15, 0, 0x15, 8, 0x15, 8, 0x2C]) + inner + bytes(1)
    content = vector(dictionary + bytes(5) + data + bytes(4))
    headers = np.empty(4 * HEADER_FIELDS, dtype=np.int64)
    assert page_headers(content, headers) == 2
    first, second = headers.reshape(4, HEADER_FIELDS)[:2].tolist()
    assert first[:6] == [2, 10, 5, -1, 3, 2]
    assert first[12] == len(dictionary)
    assert second[:8] == [0, 4, 4, -1, 128, 8, 3, 3]
    assert second[12] == len(dictionary) + 5 + len(data)
    assert page_headers(content, headers[:HEADER_FIELDS]) == 1
    for n_bytes in range(1, len(content)):
        n = page_headers(content[:n_bytes], headers)
        assert n == (1 if n_bytes == len(dictionary) + 5 else NO_HEADER)


@pytest.mark.parametrize("n", [1, 70, 200, 1000])
@pytest.mark.parametrize("kind", ["zeros", "random", "longs", "text"])
def test_snappy_is_what_arrow_packed(kind: str, n: int) -> None:
    rng = np.random.default_rng(n)
    contents = {
        "zeros": bytes(n),
        "random": rng.bytes(n),
        "longs": rng.integers(0, 1 << 20, n).astype(np.int64).tobytes(),
        "text": " ".join(str(k % 97) for k in range(n)).encode(),
    }
    content = contents[kind]
    packed = vector(pa.Codec("snappy").compress(content, asbytes=True))
    out = np.empty(len(content), dtype=np.uint8)
    assert unpack_snappy(packed.ctypes.data, packed.shape[0], out) == 0
    assert out.tobytes() == content
    assert unpack_snappy(packed.ctypes.data, packed.shape[0], out[:-1]) == 1
    for n_bytes in range(0, packed.shape[0], 1 + packed.shape[0] // 20):
        guarded = np.full(len(content) + 16, 7, dtype=np.uint8)
        assert unpack_snappy(packed.ctypes.data, n_bytes, guarded[: len(content)]) == 1
        assert (guarded[len(content) :] == 7).all()
    for _ in range(10):
        broken = packed.copy()
        broken[rng.integers(packed.shape[0])] = rng.integers(256)
        unpack_snappy(broken.ctypes.data, broken.shape[0], guarded[: len(content)])
        assert (guarded[len(content) :] == 7).all()
