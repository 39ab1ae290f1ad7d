"""Folders on any file system that pyarrow can open, while others write into them."""

import os

import pyarrow as pa
from pyarrow import fs

from eddies.errors import StateError


def open_folder(folder: str) -> tuple[fs.FileSystem, str]:
    """The file system that a folder lies on, and its path there."""
    if "://" not in folder and not folder.startswith("file:"):
        return fs.LocalFileSystem(), os.path.abspath(folder)
    try:
        files, path = fs.FileSystem.from_uri(folder)
    except (pa.ArrowInvalid, OSError) as error:
        raise StateError(
            f"the checkpoint {folder!r} lies on a file system that cannot be opened here: {error}"
        ) from error
    return files, path


def listed(files: fs.FileSystem, path: str) -> list[fs.FileInfo]:
    """What lies in a folder; nothing if there is no such folder.

    Somebody may create the folder at this moment: pyarrow fails if it was not there when it was opened,
    but is there when pyarrow asks whether that was the reason. The second look finds it.
    """
    selector = fs.FileSelector(path, allow_not_found=True)
    try:
        found: list[fs.FileInfo] = files.get_file_info(selector)
    except FileNotFoundError:
        found = files.get_file_info(selector)
    return found
