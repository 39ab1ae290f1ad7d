"""An HTTP endpoint as a stream: page after page.

An offset is a page and a row in it. A page is told as its server tells it: by number, or by what the
page before named as the next one. Pages are fetched by the process that plans, which keeps the one
that it has handed out in part; parts carry their rows.

Known limitation: an epoch that a new process runs again is fetched again, so exactly-once needs a
server that answers the same page with the same rows. What a server names as the next page is written
into the checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from eddies.errors import SourceError
from eddies.sources.http import HttpSource, as_table, rows_of
from eddies.sources.streams.base import Offset, Part, offset_at
from eddies.sources.streams.rows import carried

__all__ = ["HttpStream"]


@dataclass(frozen=True, slots=True)
class _Page:
    """Its rows, and what names the page after it (None: there is none)."""

    table: pa.Table
    following: str | int | None


class HttpStream:
    """See the module docstring."""

    is_mirrored: ClassVar[bool] = False
    is_patient: ClassVar[bool] = True
    n_rows: ClassVar[int | None] = None
    key: tuple[str, ...] = ()

    def __init__(self, source: HttpSource, columns: Sequence[str] | None = None) -> None:
        split: Any = source.splits()[0]  # the pages are known to it
        self._source = source
        self.label = source.label
        self._columns = source.schema.names if columns is None else list(columns)
        self.schema = pa.schema([source.schema.field(name) for name in self._columns])
        self._pages = split.pages
        self._fetched: dict[int, _Page] = {}  # by position
        self._position_of: dict[str | int | None, int] = {}

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_fetched": {}, "_position_of": {}}

    def narrowed(self, columns: Sequence[str]) -> HttpStream:
        return HttpStream(self._source, columns)

    def start(self) -> Offset:
        counts = self._pages.page is not None and self._pages.next is None
        return offset_at(0, page=0, name=self._pages.first_page if counts else None, row=0)

    def is_end(self, offset: Offset) -> bool:
        return bool(offset["end"])

    def latest(self, offset: Offset, most_rows: int) -> Offset:
        """Fetches pages, so it may wait."""
        if offset["end"]:
            return offset
        position, name, row = offset["page"], offset["name"], offset["row"]
        self._fetched = {n: page for n, page in self._fetched.items() if n >= position}
        left, is_end = most_rows, False
        while left and not is_end:
            page = self._page(position, name)
            taken = min(left, page.table.num_rows - row)
            row, left = row + taken, left - taken
            if row == page.table.num_rows:
                is_end = page.following is None
                if not is_end:
                    position, name, row = position + 1, page.following, 0
        rows = offset["rows"] + most_rows - left
        return offset_at(rows, is_end=is_end, page=position, name=name, row=row)

    def parts(self, start: Offset, end: Offset) -> list[Part]:
        position, name, row = start["page"], start["name"], start["row"]
        found: list[Part] = []
        while (position, row) < (end["page"], end["row"]):
            page = self._page(position, name)
            is_last = position == end["page"]
            stop = end["row"] if is_last else page.table.num_rows
            if page.table.num_rows < stop or (page.following is None and not is_last):
                raise SourceError(
                    f"{self.label} answers with fewer rows than before, so what was read cannot be "
                    "read again: start the query with a new checkpoint"
                )
            if row < stop:
                batches = page.table.slice(row, stop - row).to_batches()
                found.append(carried(self.schema, batches))
            position, name, row = position + 1, page.following, 0
        return found

    def _page(self, position: int, name: str | int | None) -> _Page:
        if position in self._fetched:
            return self._fetched[position]
        if self._position_of.setdefault(name, position) != position:
            raise SourceError(f"the pages of {self.label} go round in a circle")
        pages = self._pages
        url = pages.url if name is None else self._address(name)
        answer = pages.server.get(url)
        if answer is None and name is None:
            raise SourceError(f"there is nothing at the address of {self.label}")
        rows = rows_of(answer, pages.rows, url)
        following: str | int | None = None
        if pages.next is not None:
            found = answer.get(pages.next) if isinstance(answer, dict) else None
            following = str(found) if found else None
        elif pages.page is not None and rows:
            following = int(name or 0) + 1
        table = as_table(rows, self._source.schema, url).select(self._columns).combine_chunks()
        page = _Page(table, following)
        self._fetched[position] = page
        return page

    def _address(self, name: str | int) -> str:
        pages = self._pages
        if pages.next is None:
            return str(pages._with(pages.page, name))
        return str(pages._following(name))
