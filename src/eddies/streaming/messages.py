"""What a task and the keeper of its cell say to each other.

A task sends a `Request`. The keeper answers with the results as Arrow streams, an empty message, and
then `Done` or `Failed`.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace

from eddies.core.progress import Progress
from eddies.streaming.cell import Cell, CellSpec
from eddies.streaming.guardian import Guardian
from eddies.streaming.log import EpochLog

__all__ = ["Done", "Failed", "Request", "cell_folder"]


def cell_folder(folder: str, number: int) -> str:
    """Where the log of a cell lies."""
    return f"{folder}/cell-{number}"


@dataclass(frozen=True, slots=True)
class Request:
    """Run `epoch`. The specification is pickled, so that it is only opened where it is new."""

    spec: bytes
    number: int
    coordinates: tuple[int, ...]
    folder: str  # of the block; the log of the cell lies in it
    epoch: int
    query_id: str
    guardian: Guardian  # of the worker that asks

    @property
    def what(self) -> tuple[bytes, str, str]:
        """What a cell must have been made for to serve this request."""
        return self.spec, self.folder, self.query_id

    def cell_spec(self) -> CellSpec:
        """The specification, opened."""
        spec: CellSpec = pickle.loads(self.spec)
        return replace(spec, number=self.number, coordinates=self.coordinates)

    def cell(self, spec: CellSpec) -> Cell:
        """The cell that can run it."""
        return Cell(spec, EpochLog(cell_folder(self.folder, self.number)))


@dataclass(frozen=True, slots=True)
class Done:
    """The epoch has run; all results were sent."""

    n_rebuilt: int
    progress: Progress | None


@dataclass(frozen=True, slots=True)
class Failed:
    """The epoch cannot run: the error as far as it can be sent, and where it came from."""

    error: BaseException
    trace: str
