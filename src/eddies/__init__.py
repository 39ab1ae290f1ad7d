"""Joins without a query plan.

`eddies` joins many sources while deciding the join order all the time, from what it measures: each
Spark task hosts an *eddy* (Avnur and Hellerstein 2000) that routes batches of Arrow rows among
state modules. See the README for a first query and `docs/` for the ideas.

Names are imported on first use (PEP 562), so that `import eddies.core` works, and stays fast, where
neither Spark nor Java is installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eddies import errors
    from eddies.core.options import Options
    from eddies.sources import read
    from eddies.spark.explain import explain
    from eddies.spark.online import online
    from eddies.spark.query import sql
    from eddies.spark.session import session

__all__ = [
    "Options",
    "__version__",
    "errors",
    "explain",
    "online",
    "read",
    "session",
    "sql",
]

_MODULES = {
    "errors": "eddies.errors",
    "read": "eddies.sources.read",
    "sql": "eddies.sql",
}
_MODULE_BY_NAME = {
    "Options": "eddies.core.options",
    "explain": "eddies.spark.explain",
    "online": "eddies.spark.online",
    "session": "eddies.spark.session",
}


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("eddies")
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name not in _MODULE_BY_NAME:
        raise AttributeError(f"module 'eddies' has no attribute {name!r}")
    exported: object = getattr(import_module(_MODULE_BY_NAME[name]), name)
    globals()[name] = exported
    return exported


def __dir__() -> list[str]:
    return sorted(__all__)
