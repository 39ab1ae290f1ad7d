"""What a cell has done so far, left beside its log for whoever asks how a query is getting on."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterator

from pyarrow import fs

from eddies.core.progress import Progress
from eddies.streaming.folder import listed, open_folder

__all__ = ["read_progress", "write_progress"]

_NAME = "progress"


def write_progress(folder: str, progress: Progress) -> None:
    """Replace what is known of the cell whose log lies in `folder`."""
    files, path = open_folder(folder)
    temporary = f"{path}/.{_NAME}.{uuid.uuid4().hex}"
    with files.open_output_stream(temporary) as stream:
        stream.write(pickle.dumps(progress))
    files.move(temporary, f"{path}/{_NAME}")


def read_progress(folder: str) -> Iterator[Progress]:
    """What all cells of a block have left."""
    files, path = open_folder(folder)
    cells = listed(files, path)
    for cell in cells:
        name = f"{cell.path}/{_NAME}"
        if files.get_file_info(name).type == fs.FileType.File:
            with files.open_input_stream(name) as stream:
                yield pickle.loads(stream.read())
