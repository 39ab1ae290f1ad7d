"""How many rows are joined at once when a form is made: as many as give a piece of tuples.

Tuples that are made but not stored yet are not counted in any budget. A row may give thousands of them,
and nobody knows before the first rows were joined. So a form is made in pieces, the first of a few
rows, the next of as many as are likely to give `PIECE_TUPLES`; after each it is asked whether there is
room for what was made.
"""

from __future__ import annotations

__all__ = ["Pace"]

FIRST_ROWS = 64
MOST_ROWS = 32_768
PIECE_TUPLES = 65_536


class Pace:
    """`n_rows` is the size of the next piece; `see` after each."""

    __slots__ = ("n_rows",)

    def __init__(self) -> None:
        self.n_rows = FIRST_ROWS

    def see(self, n_rows: int, n_tuples: int) -> None:
        """`n_rows` rows gave `n_tuples` tuples."""
        likely = n_rows * PIECE_TUPLES // max(1, n_tuples)
        self.n_rows = max(1, min(MOST_ROWS, likely))
