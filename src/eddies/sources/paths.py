"""From what a user writes as a path to the files that are meant.

A path is a file, a folder, a pattern (`*`, `?`, `[ab]`, `{a,b}`) or a list of these, on this machine
or on any file system that pyarrow knows by a URI (`file://`, `s3://`, `gs://`, `abfss://`,
`hdfs://`). Folders are read as Spark reads them: names that begin with `_` or `.` are not data;
subfolders named `key=value` are partitions (see `eddies.sources.partitions`); other subfolders are
not entered.

Relative paths are made absolute at once: a task runs in another folder. A URI that pyarrow has no file
system for is not an error here (`NoFileSystem` says why): Spark may know it.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs

from eddies.errors import SourceError

__all__ = [
    "DataFile",
    "Files",
    "NoFileSystem",
    "PathLike",
    "Paths",
    "Place",
    "find_files",
    "shown",
    "spark_paths",
]

PathLike = str | os.PathLike[str]
Paths = PathLike | Iterable[PathLike]

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
# Hadoop's name of a store that pyarrow knows under another.
_ARROW_SCHEMES = {"s3a": "s3", "s3n": "s3"}
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_SHOWN_PATHS = 3


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file. `partition` is what its folders say: (key, text), text None for NULL."""

    path: str
    n_bytes: int
    changed_ns: int
    partition: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """Where files lie: a file system, as `host` sees it."""

    system: fs.FileSystem
    host: str

    @property
    def is_local(self) -> bool:
        """Whether paths mean another file on another machine."""
        return isinstance(self.system, fs.LocalFileSystem)


@dataclass(frozen=True, slots=True)
class Files:
    """All files of a source. `given` is what the user wrote, with relative paths made absolute."""

    given: tuple[str, ...]
    place: Place
    found: tuple[DataFile, ...]


@dataclass(frozen=True, slots=True)
class NoFileSystem:
    """Paths that pyarrow cannot reach, and why."""

    given: tuple[str, ...]
    reason: str


def find_files(paths: Paths) -> Files | NoFileSystem:
    """The files that `paths` mean, sorted by path. Raises `SourceError` if there are none."""
    given = _given(paths)
    found: list[DataFile] = []
    system: fs.FileSystem | None = None
    for text in given:
        located = _locate(text)
        if isinstance(located, str):
            return NoFileSystem(given, located)
        here, root, pattern = located
        if system is not None and not system.equals(here):
            raise SourceError(
                f"{given[0]} and {text} lie on different file systems; read them as two sources"
            )
        system = here
        found += _files_of(here, root, pattern, text)
    assert system is not None
    by_path = {file.path: file for file in found}
    return Files(
        given, Place(system, socket.gethostname()), tuple(by_path[path] for path in sorted(by_path))
    )


def shown(given: tuple[str, ...]) -> str:
    """Paths in few words, for labels."""
    here = os.getcwd() + os.sep
    texts = [path.removeprefix(here) for path in given[:_SHOWN_PATHS]]
    if len(given) > _SHOWN_PATHS:
        texts.append(f"... {len(given) - _SHOWN_PATHS} more")
    return ", ".join(texts)


def _given(paths: Paths) -> tuple[str, ...]:
    if isinstance(paths, str | os.PathLike):
        paths = [paths]
    if not isinstance(paths, Iterable):
        raise SourceError(f"a path is text, or a list of texts, not {type(paths).__name__}")
    given = []
    for path in paths:
        if not isinstance(path, str | os.PathLike) or isinstance(path, bytes):
            raise SourceError(f"a path is text, or a list of texts, not {type(path).__name__}")
        text = os.fspath(path)
        if not text:
            raise SourceError("a path is empty")
        given.append(text if _SCHEME.match(text) else os.path.abspath(os.path.expanduser(text)))
    if not given:
        raise SourceError("the list of paths is empty")
    return tuple(given)


def _locate(text: str) -> tuple[fs.FileSystem, str, str] | str:
    """File system, path up to the first pattern, and the pattern ("" if none); or why not."""
    if not _SCHEME.match(text):
        system = fs.LocalFileSystem()
        if os.path.lexists(text):
            return system, text, ""
        root, pattern = _cut_at_pattern(text, r"[*?\[{]")
        return system, root or "/", pattern
    scheme, _, rest = text.partition(":")
    rest, question, options = rest.partition("?")
    root, pattern = _cut_at_pattern(rest, r"[*\[{]")
    uri = f"{_ARROW_SCHEMES.get(scheme.lower(), scheme)}:{root}{question}{options}"
    try:
        system, path = fs.FileSystem.from_uri(uri)
    except pa.ArrowInvalid as error:
        return f"pyarrow has no file system for {scheme}: ({_first_line(error)})"
    except (ImportError, pa.ArrowNotImplementedError) as error:
        return f"this pyarrow was built without {scheme} ({_first_line(error)})"
    except OSError as error:
        if "libhdfs" in str(error) or "libjvm" in str(error):
            return f"pyarrow finds no Hadoop on this machine for {scheme} ({_first_line(error)})"
        raise SourceError(f"{text}: {_first_line(error)}") from error
    return system, unquote(path) if scheme == "file" else path, pattern


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _cut_at_pattern(path: str, signs: str) -> tuple[str, str]:
    """`data/2024/*.csv` as `data/2024` and `*.csv`."""
    found = re.search(signs, path)
    if found is None:
        return path, ""
    cut = path.rfind("/", 0, found.start())
    return path[:cut], path[cut + 1 :]


def _files_of(system: fs.FileSystem, root: str, pattern: str, text: str) -> list[DataFile]:
    try:
        if not pattern:
            return _files_under(system, system.get_file_info(root), text)
        matches = [
            info for option in _alternatives(pattern) for info in _matching(system, root, option)
        ]
        if not matches:
            raise SourceError(f"no file matches {text}")
        found = [file for info in matches for file in _files_under(system, info, info.path)]
    except PermissionError as error:
        raise SourceError(
            f"{text} may not be read by this user: {error}; ask for read permission on the files "
            "and on the folders above them"
        ) from error
    except OSError as error:
        raise SourceError(f"{text} cannot be listed: {_first_line(error)}") from error
    return found


def _alternatives(pattern: str) -> Iterator[str]:
    """`{a,b}*.csv` as `a*.csv` and `b*.csv`."""
    found = re.search(r"\{([^{}]*)\}", pattern)
    if found is None:
        yield pattern
        return
    for option in found.group(1).split(","):
        yield from _alternatives(pattern[: found.start()] + option + pattern[found.end() :])


def _matching(system: fs.FileSystem, root: str, pattern: str) -> list[fs.FileInfo]:
    """Files and folders that match, one folder level of the pattern after the other."""
    part, _, rest = pattern.partition("/")
    selector = fs.FileSelector(root, allow_not_found=True)
    infos = [
        info
        for info in system.get_file_info(selector)
        if fnmatchcase(info.base_name, part) and not _is_hidden(info.base_name)
    ]
    if not rest:
        return infos
    folders = [info.path for info in infos if info.type == fs.FileType.Directory]
    return [found for folder in folders for found in _matching(system, folder, rest)]


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _files_under(system: fs.FileSystem, info: fs.FileInfo, text: str) -> list[DataFile]:
    if info.type == fs.FileType.NotFound:
        raise SourceError(f"there is no {text}")
    if info.type == fs.FileType.File:
        return [_data_file(info, ())]
    listed = system.get_file_info(fs.FileSelector(info.path, recursive=True))
    files, n_elsewhere = [], 0
    for below in listed:
        if below.type != fs.FileType.File:
            continue
        *folders, name = below.path[len(info.path) :].strip("/").split("/")
        if any(map(_is_hidden, folders)) or _is_hidden(name):
            continue
        if all("=" in folder for folder in folders):
            files.append(_data_file(below, tuple(map(_key_and_text, folders))))
        else:
            n_elsewhere += 1
    if not files:
        hint = "; it is empty"
        if n_elsewhere:
            hint = f", but {n_elsewhere} in subfolders, which are read only if named key=value: "
            hint += f"use a pattern such as {text.rstrip('/')}/*/*"
        raise SourceError(f"the folder {text} has no files{hint}")
    return files


def _data_file(info: fs.FileInfo, partition: tuple[tuple[str, str | None], ...]) -> DataFile:
    return DataFile(info.path, int(info.size or 0), int(info.mtime_ns or 0), partition)


def _key_and_text(folder: str) -> tuple[str, str | None]:
    key, _, text = folder.partition("=")
    return unquote(key), None if text == _NULL_PARTITION else unquote(text)


def spark_paths(files: Files) -> list[str]:
    """The paths as Spark must be given them to read the same files."""
    if not files.place.is_local:
        return list(files.given)
    paths = []
    for path in files.given:
        path = path if _SCHEME.match(path) else f"file:{path}"
        is_literal = os.path.lexists(path.partition(":")[2])
        # Spark takes every path for a pattern.
        paths.append(re.sub(r"([*?\[\]{}\\])", r"\\\1", path) if is_literal else path)
    return paths
