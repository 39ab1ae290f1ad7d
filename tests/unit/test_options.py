"""Options are checked when they are made, and say what is wrong."""

from __future__ import annotations

import dataclasses

import pytest

from eddies.core.options import Options, parse_bytes
from eddies.errors import OptionError


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [
        ("1", 1),
        (17, 17),
        ("64KB", 64 << 10),
        ("64 kib", 64 << 10),
        ("512MB", 512 << 20),
        ("1.5 GB", 3 << 29),
        ("2g", 2 << 30),
        ("1TiB", 1 << 40),
        (" 10B ", 10),
    ],
)
def test_sizes(text: str | int, n_bytes: int) -> None:
    assert parse_bytes(text) == n_bytes
    assert Options(memory=text).memory_bytes == n_bytes


@pytest.mark.parametrize(
    "text", ["", "MB", "ten MB", "-1", "1XB", "0", 0, -5, 1.5, True, [], "1 2"]
)
def test_sizes_that_are_none(text: object) -> None:
    with pytest.raises(OptionError, match="memory"):
        parse_bytes(text)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="memory"):
        Options(memory=text)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"policy": "best"}, "unknown policy 'best'; choose one of auto"),
        ({"policy": "static"}, "needs order"),
        ({"state": "magic"}, "unknown state 'magic'"),
        ({"batch_rows": 0}, "batch_rows must be a whole number of at least 1, not 0"),
        ({"batch_rows": 1.5}, "batch_rows"),
        ({"batch_rows": True}, "batch_rows"),
        ({"batch_rows": 1 << 21}, "at most 1048576"),
        ({"reoptimize_every": -1}, "reoptimize_every"),
        ({"threads": 0}, "threads"),
        ({"threads": "2"}, "threads"),
    ],
)
def test_bad_values_are_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Options(**settings)  # type: ignore[arg-type]


def test_option_errors_are_value_errors() -> None:
    with pytest.raises(ValueError, match="policy"):
        Options(policy="none")


def test_options_do_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Options().batch_rows = 5  # type: ignore[misc]


def test_no_budget_unless_asked() -> None:
    assert Options().memory_bytes is None
