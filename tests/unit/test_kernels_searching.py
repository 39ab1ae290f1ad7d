"""Pieces found in texts: the kernel does what its naive twin does."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from eddies.core.functions import FUNCTIONS
from eddies.core.kernels.searching import AT_BEGIN, AT_END, find_pieces
from tests.support import naive


def found(texts: list[bytes], pieces: list[bytes], where: int) -> list[bool]:
    offsets = np.cumsum([0, *map(len, texts)], dtype=np.int32)
    borders = np.cumsum([0, *map(len, pieces)], dtype=np.int64)
    answer = np.full(len(texts), 7, np.uint8)
    content = np.frombuffer(b"".join(texts), np.uint8)
    find_pieces(offsets, content, np.frombuffer(b"".join(pieces), np.uint8), borders, where, answer)
    assert set(answer.tolist()) <= {0, 1}
    return [bool(one) for one in answer]


@pytest.mark.parametrize("where", [0, AT_BEGIN, AT_END, AT_BEGIN | AT_END])
def test_pieces_are_found_where_the_naive_twin_finds_them(where: int) -> None:
    rng = random.Random(where)
    for _ in range(60):
        letters = rng.choice((b"ab", b"abc", bytes(range(256))))

        def drawn(least: int, most: int, letters: bytes = letters) -> bytes:
            return bytes(rng.choice(letters) for _ in range(rng.randint(least, most)))

        pieces = [drawn(1, 3) for _ in range(rng.randint(1, 3))]
        if where == AT_BEGIN | AT_END and len(pieces) == 1:
            pieces.append(drawn(1, 2))
        texts = [drawn(0, 12) for _ in range(20)] + [b"", b"".join(pieces), b"x".join(pieces)]
        expected = [
            naive.has_pieces(text, pieces, bool(where & AT_BEGIN), bool(where & AT_END))
            for text in texts
        ]
        assert found(texts, pieces, where) == expected, (texts, pieces)


def test_no_texts() -> None:
    assert found([], [b"a"], 0) == []


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("%ä%ö%", [True, None, False, False, True, False]),
        ("ä%ö", [True, None, False, False, False, False]),
        ("%b%", [False, None, True, False, False, False]),
        ("a%b%", [False, None, True, False, False, False]),
        ("%a%%b", [False, None, True, False, False, False]),
        ("%", [True, None, True, True, True, True]),
    ],
)
def test_like_by_pieces_on_slices_with_nulls(pattern: str, expected: list[bool | None]) -> None:
    texts = pa.array(["zzz", "ä-ö", None, "ab", "", "xäyöz", "ö ä"])
    like = next(function for function in FUNCTIONS.values() if function.name == "like").kernel
    assert like(texts.slice(1), pa.scalar(pattern)).to_pylist() == expected
    for text, holds in zip(texts.slice(1), expected, strict=True):
        assert like(text, pa.scalar(pattern)).as_py() == holds
    assert len(like(texts.slice(0, 0), pa.scalar(pattern))) == 0
    nulls = pa.array([None, None], pa.string())
    assert like(nulls, pa.scalar(pattern)).to_pylist() == [None, None]
