"""Errors users can act on: each says what was expected, what came, and what to do."""

from __future__ import annotations

__all__ = [
    "EddiesError",
    "EvaluationError",
    "MemoryBudgetError",
    "OptionError",
    "PlanError",
    "SourceError",
    "SpillError",
    "StateError",
    "TypeMismatchError",
    "UnknownNameError",
    "UnreachableError",
    "UnsupportedError",
]


class EddiesError(Exception):
    """Base of every error this package raises on purpose."""


class OptionError(EddiesError, ValueError):
    """An option has a value that cannot be used."""


class PlanError(EddiesError):
    """The query cannot be planned. Raised before any row is read."""


class UnknownNameError(PlanError):
    """The query names a table, column or function that does not exist."""


class UnreachableError(PlanError):
    """A source has no scan, and nothing in the query binds an index of it."""


class TypeMismatchError(PlanError):
    """An expression combines types that SQL does not combine, or a batch has the wrong schema."""


class UnsupportedError(PlanError):
    """Correct SQL that this host cannot run; the message names the construct."""


class EvaluationError(EddiesError):
    """An expression failed on a value: division by zero, overflow, a bad cast, a user function."""


class SourceError(EddiesError):
    """A source failed, delivered the wrong schema, or was used after its end."""


class MemoryBudgetError(EddiesError):
    """The state of a query does not fit into what it may use."""


class SpillError(EddiesError):
    """Rows could not be written to the spill directory, or did not come back as they were."""


class StateError(EddiesError):
    """Join state cannot be rewritten as asked; nothing was changed."""
