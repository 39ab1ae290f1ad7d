"""The engine, without Spark, SQL or files: push Arrow batches in, poll result batches out."""

from __future__ import annotations

from eddies.core.eddy import Eddy
from eddies.core.options import Options
from eddies.core.query import Query

__all__ = ["Eddy", "Options", "Query"]
