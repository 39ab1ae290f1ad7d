"""The plan beside the epoch logs: which query they belong to, and how its cells were divided.

Rows lie in the log of the cell they were sent to, so a later start must send them the same way: it
takes the division of cells from here, whatever sizes it sees, and is refused if its query is another.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa
from pyarrow import fs

from eddies.core.query import Query
from eddies.errors import StateError
from eddies.streaming.folder import open_folder

__all__ = ["PlanFile", "fingerprint"]

_NAME = "plan.json"
_VERSION = 2


def fingerprint(query: Query, *others: object) -> str:
    """A name for what a query computes; `others` are options that matter for it."""
    functions = [(f.name, str(f.returns)) for f in query.functions]
    text = f"{replace(query, functions=())!r} {functions!r} {others!r}"
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class PlanFile:
    """What is written down. `cells` is a division of cells as plain values; `query_id` is Spark's name
    for the streaming query, which lives in the checkpoint as well.
    """

    query: str
    text: str
    cells: Mapping[str, Any]
    query_id: str = ""
    version: int = _VERSION

    @classmethod
    def read(cls, folder: str) -> PlanFile | None:
        """What is written in `folder`; None if nothing is."""
        files, path = open_folder(folder)
        if files.get_file_info(f"{path}/{_NAME}").type == fs.FileType.NotFound:
            return None
        try:
            with files.open_input_stream(f"{path}/{_NAME}") as stream:
                found = cls(**json.loads(stream.read()))
        except (ValueError, TypeError, OSError, pa.ArrowInvalid) as error:
            raise StateError(
                f"{folder}/{_NAME} cannot be read ({error}); restore it, or start again with an empty "
                "checkpoint"
            ) from error
        if found.version != _VERSION:
            raise StateError(
                f"{folder} was written in format {found.version}, this is format {_VERSION}; start "
                "again with an empty checkpoint"
            )
        return found

    def write(self, folder: str) -> None:
        """Write it down, unless it is there; what is there must agree."""
        known = self.read(folder)
        if known is not None:
            self.check(known, folder)
            return
        files, path = open_folder(folder)
        files.create_dir(path, recursive=True)
        temporary = f"{path}/.{_NAME}.{uuid.uuid4().hex}"
        with files.open_output_stream(temporary) as stream:
            stream.write(json.dumps(asdict(self), indent=1).encode())
        files.move(temporary, f"{path}/{_NAME}")

    def check(self, known: PlanFile, folder: str) -> None:
        """Refuse to go on with the state of something else."""
        if known.query != self.query:
            raise StateError(
                f"the checkpoint {folder} holds the state of another query:\n{known.text}\nUse another "
                "checkpoint, or the query it was made with (text, schemas, window)"
            )
        if known.query_id and self.query_id and known.query_id != self.query_id:
            raise StateError(
                f"the state in {folder} belongs to streaming query {known.query_id}, this is "
                f"{self.query_id}: Options(checkpoint=...) and checkpointLocation must be the same "
                "directory, and be emptied together"
            )
