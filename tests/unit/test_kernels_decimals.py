"""Products of decimals equal those of Python's whole numbers."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from eddies.core.functions import decimals
from eddies.core.kernels.decimals import multiply_small

_MOST = (1 << 63) - 1
NUMBERS = [0, 1, -1, 7, -12345678901, _MOST, -_MOST - 1, 10**18, -(10**18)]


def words(numbers: list[int]) -> np.ndarray:
    pairs = [(n & 0xFFFFFFFFFFFFFFFF, (n >> 64) & 0xFFFFFFFFFFFFFFFF) for n in numbers]
    return np.array(pairs, dtype=np.uint64).view(np.int64).ravel()


def test_products_of_words() -> None:
    left = [a for a in NUMBERS for _ in NUMBERS]
    right = [b for _ in NUMBERS for b in NUMBERS]
    found = np.empty(2 * len(left), dtype=np.int64)
    assert multiply_small(words(left), words(right), found)
    assert found.tolist() == words([a * b for a, b in zip(left, right, strict=True)]).tolist()


@pytest.mark.parametrize("large", [_MOST + 1, -_MOST - 2, 10**30])
def test_what_needs_two_words_is_left_to_others(large: int) -> None:
    found = np.empty(4, dtype=np.int64)
    assert not multiply_small(words([1, large]), words([1, 1]), found)
    assert not multiply_small(words([1, 1]), words([1, large]), found)


def array(precision: int, scale: int, *numbers: str | None) -> pa.Array:
    exact = [None if n is None else Decimal(n) for n in numbers]
    return pa.array(exact, pa.decimal128(precision, scale))


def test_decimals_with_nulls_offsets_and_many_digits() -> None:
    """Both ways give the same: one number that is too large sends the batch the long way."""
    price = array(15, 2, None, "1.25", "-3.50", None, "999.99")
    rate = array(32, 4, "9.99", "0.0400", "0.0001", "1.0000", None)
    found = decimals.multiply(price[1:], rate[1:])
    assert found.type == decimals.multiply_type(price.type, rate.type)
    assert found.to_pylist() == [Decimal("0.050000"), Decimal("-0.000350"), None, None]
    large = array(32, 2, "1.25", "1" * 20 + ".50")
    product = decimals.multiply(large, array(32, 2, "2.00", "2.00"))
    assert product.to_pylist() == [Decimal("2.5"), Decimal("2" * 19 + "3")]
