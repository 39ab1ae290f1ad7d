"""An HTTP server on loopback that serves tables as JSON, slowly, partly or not at all on command."""

from __future__ import annotations

import json
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pyarrow as pa

__all__ = ["JsonServer", "serve"]


class JsonServer:
    """`/pages?page=N` is a page of the table, `/linked` the same with links, `/rows/KEY` a look-up.

    `fails` are the numbers of requests that get status 503; after `dies_after` requests every
    connection is closed without an answer.
    """

    def __init__(self, table: pa.Table, key: str, page_rows: int = 10) -> None:
        self.rows = json.loads(json.dumps(table.to_pylist(), default=str))
        self.key = key
        self.page_rows = page_rows
        self.delay_s = 0.0
        self.fails: set[int] = set()
        self.dies_after: int | None = None
        self.n_requests = 0
        self.n_busy = 0
        self.most_busy = 0
        self.lock = threading.Lock()
        self.url = ""

    def answer(self, path: str, query: dict[str, str]) -> object | None:
        """The JSON for a path; None: not found."""
        if path == "/pages":
            first = (int(query.get("page", "1")) - 1) * self.page_rows
            return self.rows[first : first + self.page_rows]
        if path == "/linked":
            first = int(query.get("from", "0"))
            following = first + self.page_rows
            has_more = following < len(self.rows)
            return {
                "items": self.rows[first:following],
                "next": f"/linked?from={following}" if has_more else None,
            }
        if path.startswith("/rows/"):
            wanted = urllib.parse.unquote(path.removeprefix("/rows/"))
            return [row for row in self.rows if str(row[self.key]) == wanted] or None
        if path == "/text":
            return "not an object"
        return None


def _handler(server: JsonServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            """Say nothing."""

        def do_GET(self) -> None:
            """Answer, or misbehave as told."""
            with server.lock:
                server.n_requests += 1
                number = server.n_requests
                server.n_busy += 1
                server.most_busy = max(server.most_busy, server.n_busy)
            time.sleep(server.delay_s)
            with server.lock:
                server.n_busy -= 1  # before the answer goes out, upon which the next may come
            self._answer(number)

        def _answer(self, number: int) -> None:
            if server.dies_after is not None and number > server.dies_after:
                self.close_connection = True
                self.connection.close()
                return
            parts = urllib.parse.urlsplit(self.path)
            found = server.answer(parts.path, dict(urllib.parse.parse_qsl(parts.query)))
            status = 503 if number in server.fails else 404 if found is None else 200
            body = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def handle(self) -> None:
            """A connection that was closed on purpose is no news."""
            try:
                super().handle()
            except (OSError, ValueError):
                return

        def finish(self) -> None:
            """The same at the end."""
            try:
                super().finish()
            except (OSError, ValueError):
                return

    return Handler


@contextmanager
def serve(server: JsonServer) -> Iterator[JsonServer]:
    """Run it on a free port of loopback."""
    listening = ThreadingHTTPServer(("127.0.0.1", 0), _handler(server))
    listening.daemon_threads = True
    thread = threading.Thread(target=listening.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    server.url = f"http://127.0.0.1:{listening.server_address[1]}"
    try:
        yield server
    finally:
        listening.shutdown()
        listening.server_close()
        thread.join()
