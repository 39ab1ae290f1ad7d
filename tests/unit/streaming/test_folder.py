"""Folders that others create while we look."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyarrow import fs

from eddies.streaming.folder import listed, open_folder


def test_a_folder_that_is_not_there_is_empty(tmp_path: Path) -> None:
    files, path = open_folder(str(tmp_path / "none"))
    assert listed(files, path) == []


def test_a_folder_may_be_created_while_it_is_listed(tmp_path: Path) -> None:
    files, _ = open_folder(str(tmp_path))

    def look(folder: str) -> list[list[fs.FileInfo]]:
        return [listed(files, folder) for _ in range(10)]

    with ThreadPoolExecutor(2) as threads:
        for i in range(1000):
            folder = str(tmp_path / str(i))
            looking, creating = threads.submit(look, folder), threads.submit(os.mkdir, folder)
            assert not any(looking.result())
            creating.result()
