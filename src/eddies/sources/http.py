"""An HTTP endpoint that answers in JSON as a source: read page by page, looked up by URL.

    users = eddies.read.http(
        "http://host/users",              # a page: a list of objects, or an object with one in `rows`
        rows="items", next="next",        # where the rows are, and the address of the next page
        lookup="http://host/users/{id}", on=["id"],
    )

A *scan* follows pages: `next` names the field with the next page's address (or a token for `page`), or
`page` names a parameter that counts pages until one has no rows. A *look-up* puts values into a URL
template and expects an object, a list of objects, or "not found". At most `concurrency` look-ups are
under way at once.

A page or look-up that fails because of the network or the server (no connection, time-out, status 429
or 5xx) is tried again with growing pauses; other failures are errors at once.

Known limitations: a JSON number that does not fit its column is an error; nested values are kept as
the schema says. Pages are read one after the other, so a scan is one split.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from string import Formatter
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from eddies.core.access.method import IndexAccess
from eddies.core.expr import Expr
from eddies.errors import SourceError
from eddies.sources.delivered import delivered_schema
from eddies.sources.reachable import AccessSource, Reachable
from eddies.sources.retries import Patience
from eddies.sources.source import DEFAULT_BATCH_ROWS, Split
from eddies.sources.through_tasks import dataframe_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["HttpSource", "http_source"]

_PASSING = (408, 425, 429, 500, 502, 503, 504)
_NOT_FOUND = (404, 410)


@dataclass(frozen=True, slots=True)
class _Server:
    """Gets JSON."""

    headers: tuple[tuple[str, str], ...]
    patience: Patience
    answer_s: float

    def get(self, url: str) -> Any:
        """The JSON at `url`, tried again while that may help."""
        return self.patience.call(f"GET {_shown(url)}", lambda: self.once(url), _is_passing)

    def once(self, url: str) -> Any:
        """The JSON at `url`; None if the server says that there is nothing."""
        request = urllib.request.Request(url, headers=dict(self.headers))
        try:
            with urllib.request.urlopen(request, timeout=self.answer_s) as response:
                body = response.read()
        except urllib.error.HTTPError as error:
            if error.code in _NOT_FOUND:
                return None
            raise
        try:
            return json.loads(body)
        except ValueError as error:
            raise SourceError(f"{_shown(url)} did not answer in JSON: {error}") from None


def _is_passing(error: Exception) -> bool:
    if isinstance(error, urllib.error.HTTPError):
        return error.code in _PASSING
    return isinstance(error, OSError | http.client.HTTPException)


def _shown(url: str) -> str:
    """A URL without user, password and query, which may be secret."""
    parts = urllib.parse.urlsplit(url)
    host = parts.hostname or ""
    place = f"{host}:{parts.port}" if parts.port else host
    return urllib.parse.urlunsplit((parts.scheme, place, parts.path, "", ""))


@dataclass(frozen=True, slots=True)
class _Pages:
    """How pages follow each other."""

    server: _Server
    url: str
    rows: str | None
    next: str | None
    page: str | None
    first_page: int

    def __iter__(self) -> Iterator[list[dict[str, Any]]]:
        number = self.first_page
        url = self._with(self.page, number) if self.page and not self.next else self.url
        seen = {url}
        while True:
            answer = self.server.get(url)
            if answer is None and url == self.url:
                raise SourceError(f"there is nothing at {_shown(url)}")
            rows = rows_of(answer, self.rows, url)
            if rows:
                yield rows
            if self.next is not None:
                following = answer.get(self.next) if isinstance(answer, dict) else None
                if not following:
                    return
                url = self._following(str(following))
            elif self.page is not None and rows:
                number += 1
                url = self._with(self.page, number)
            else:
                return
            if url in seen:
                raise SourceError(f"the pages of {_shown(self.url)} go round in a circle")
            seen.add(url)

    def _following(self, following: str) -> str:
        if self.page is not None:
            return self._with(self.page, following)
        return urllib.parse.urljoin(self.url, following)

    def _with(self, parameter: str, value: object) -> str:
        parts = urllib.parse.urlsplit(self.url)
        query = urllib.parse.parse_qsl(parts.query, keep_blank_values=True)
        query = [(name, text) for name, text in query if name != parameter]
        query.append((parameter, str(value)))
        return urllib.parse.urlunsplit(parts._replace(query=urllib.parse.urlencode(query)))


def rows_of(answer: Any, field: str | None, url: str) -> list[dict[str, Any]]:
    """The rows of a page: a list, the list in `field`, or one object."""
    if answer is None:
        return []
    rows = answer
    if field is not None:
        if not isinstance(answer, dict) or field not in answer:
            has = ", ".join(answer) if isinstance(answer, dict) else type(answer).__name__
            raise SourceError(f"{_shown(url)} has no field {field!r} with rows; it has: {has}")
        rows = answer[field]
    if isinstance(rows, dict):
        rows = [rows]
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise SourceError(
            f"{_shown(url)} should answer with a list of objects"
            + (f" in {field!r}" if field else "; say rows=... if they are in a field")
        )
    return rows


def as_table(rows: Sequence[Mapping[str, Any]], schema: pa.Schema, url: str) -> pa.Table:
    """JSON objects in the types of the schema; a field that is missing is NULL."""
    try:
        return pa.Table.from_pylist(list(rows), schema=schema)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise SourceError(f"a row of {_shown(url)} does not fit its schema: {error}") from None


class HttpSource(Reachable):
    """The scan of an endpoint. See `eddies.read.http`."""

    is_direct = True
    n_rows: int | None = None
    n_bytes: int | None = None

    def __init__(self, pages: _Pages, schema: pa.Schema | None) -> None:
        self.label = f"http {_shown(pages.url)}"
        self._pages = pages
        self.schema = delivered_schema(schema or _first_schema(pages), self.label)

    def __repr__(self) -> str:
        return f"<{self.label}>"

    def splits(self, where: tuple[Expr, ...] = ()) -> list[Split]:
        """One: pages follow each other."""
        return [_HttpSplit(self._pages, self.schema)]

    def dataframe(self, spark: SparkSession) -> DataFrame:
        """Rows read by one task."""
        return dataframe_of(self, spark)


def _first_schema(pages: _Pages) -> pa.Schema:
    for rows in pages:
        return pa.Table.from_pylist(rows).schema
    raise SourceError(
        f"{_shown(pages.url)} has no rows, so its columns are unknown; give schema=..."
    )


@dataclass(frozen=True, slots=True)
class _HttpSplit:
    """All pages. What a server answers twice need not be the same."""

    is_repeatable: ClassVar[bool] = False
    pages: _Pages
    schema: pa.Schema
    n_rows: int | None = None
    n_bytes: int | None = None

    def read(
        self,
        columns: Sequence[str],
        where: tuple[Expr, ...] = (),
        batch_rows: int = DEFAULT_BATCH_ROWS,
    ) -> Iterator[pa.RecordBatch]:
        """See `Split.read`."""
        for rows in self.pages:
            table = as_table(rows, self.schema, self.pages.url).select(list(columns))
            yield from table.combine_chunks().to_batches(max_chunksize=batch_rows)


@dataclass(frozen=True, slots=True)
class _UrlLookup:
    """One key, one request."""

    server: _Server
    template: str
    rows: str | None
    schema: pa.Schema

    def __call__(self, keys: pa.RecordBatch) -> pa.Table:
        found = []
        for key in keys.to_pylist():
            values = {n: urllib.parse.quote(str(v), safe="") for n, v in key.items()}
            url = self.template.format(**values)
            answer = self.server.once(url)
            field = self.rows if isinstance(answer, dict) and self.rows in answer else None
            rows = [{**key, **row} for row in rows_of(answer, field, url)]
            found.append(as_table(rows, self.schema, url))
        return pa.concat_tables(found)


def http_source(
    url: str | None,
    *,
    schema: pa.Schema | None,
    rows: str | None,
    next: str | None,
    page: str | None,
    first_page: int,
    lookup: str | None,
    on: Sequence[str],
    headers: Mapping[str, str],
    concurrency: int,
    timeout_s: float,
    retries: int,
    backoff_s: float,
) -> AccessSource:
    """See `eddies.read.http`."""
    for address in (url, lookup):
        if address is not None and not address.startswith(("http://", "https://")):
            raise SourceError(f"{address!r} is not an HTTP address")
    server = _Server(tuple(headers.items()), Patience(retries, backoff_s, timeout_s), timeout_s)
    if url is not None:
        scan = HttpSource(_Pages(server, url, rows, next, page, first_page), schema)
        source = AccessSource(scan.label, scan.schema, (scan,))
    else:
        if lookup is None or schema is None:
            raise SourceError("an HTTP source without pages needs lookup=, on= and schema=")
        source = AccessSource(f"http {_shown(lookup)}", delivered_schema(schema, "schema="), ())
    if lookup is None:
        return source
    columns = tuple(on)
    named = {name for _, name, _, _ in Formatter().parse(lookup) if name is not None}
    if not columns or named != set(columns):
        raise SourceError(
            f"lookup={lookup!r} must name the columns of on={list(columns)} in braces, each and no "
            "others"
        )
    for column in columns:
        if column not in source.schema.names:
            raise SourceError(
                f"{source.label} has no column {column!r}; it has {', '.join(source.schema.names)}"
            )
    index = IndexAccess(
        f"http by {', '.join(columns)}",
        columns,
        _UrlLookup(server, lookup, rows, source.schema),
        1,
        concurrency,
        timeout_s,
        retries,
        backoff_s,
    )
    return replace(source, indexes=(index,))
