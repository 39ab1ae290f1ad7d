"""Forms are made in pieces that follow the fan-out of their rows."""

from __future__ import annotations

from eddies.core.stairs.pace import FIRST_ROWS, MOST_ROWS, PIECE_TUPLES, Pace


def test_a_piece_has_as_many_rows_as_give_a_piece_of_tuples() -> None:
    pace = Pace()
    assert pace.n_rows == FIRST_ROWS
    pace.see(64, 64 * 100)
    assert pace.n_rows == PIECE_TUPLES // 100
    pace.see(655, 0)
    assert pace.n_rows == MOST_ROWS
    pace.see(10, 10 * 10_000_000)
    assert pace.n_rows == 1, "it always goes on"
