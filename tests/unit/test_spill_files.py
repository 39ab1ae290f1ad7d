"""Spill files: what comes back is what was written, or an error; and nothing stays behind."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from eddies.core.eddy import Eddy
from eddies.core.kernels.checksum import checksum
from eddies.core.options import Options
from eddies.core.spill import answers
from eddies.core.spill.files import Ordered, Segment, SpillDirectory, SpillFile
from eddies.core.spill.narrow import narrow_rows
from eddies.core.state_modes.spilling import SpillingStems
from eddies.errors import OptionError, SpillError
from tests.support.small import batches, make_query

ROWS = pa.record_batch({"x": list(range(100)), "s": ["text"] * 99 + [None]})
N = 3000
TABLES = {
    "a": pa.table({"x": range(N), "v": ["some text of some length"] * N}),
    "b": pa.table({"y": range(N), "w": range(N)}),
}
QUERY = make_query(TABLES, ["a.x = b.y"])


def spilled_eddy(folder: Path) -> Eddy:
    """An eddy that has flushed most of its rows and has tuples waiting for them."""
    eddy = Eddy(QUERY, Options(memory="30KB", spill_dir=str(folder)))
    for name in "ab":
        eddy.push(name, batches(TABLES[name])[0])
    for name in "ab":
        eddy.end(name)
    assert isinstance(eddy.mode, SpillingStems)
    assert eddy.mode.n_flushes > 0
    return eddy


def drain(eddy: Eddy) -> int:
    n_rows = 0
    while (rows := eddy.poll()) is not None:
        n_rows += rows.num_rows
    return n_rows


def write(
    file: SpillFile,
    batch: pa.RecordBatch,
    slices: list[tuple[int, int]] | None = None,
    order: npt.NDArray[np.int32] | None = None,
) -> list[Segment]:
    """Have slices of a batch written. Their segments are there when the file is settled."""
    segments: list[Segment] = []
    slices = slices or [(0, batch.num_rows)]
    file.write(lambda: Ordered(narrow_rows(batch), slices, order), segments.extend, batch.nbytes)
    return segments


def read(file: SpillFile, segment: Segment) -> pa.RecordBatch:
    (rows,) = file.read([segment], segment.n_rows)
    return rows.widened(file.schema)


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    directory = SpillDirectory(str(tmp_path))
    file = directory.file("rows", ROWS.schema)
    written = [write(file, ROWS.slice(i, 10)) for i in range(0, 100, 10)]
    file.settle()
    for i in (9, 0, 5):
        assert read(file, *written[i]).equals(ROWS.slice(10 * i, 10))
    directory.remove()
    directory.remove()
    assert os.listdir(tmp_path) == []


def test_many_batches_are_written_together(tmp_path: Path) -> None:
    directory = SpillDirectory(str(tmp_path), most_bytes=4096)
    file = directory.file("rows", ROWS.schema)
    slices = [(i, 1 + i % 5) for i in range(95)]
    parts = [ROWS.slice(*part) for part in slices]
    segments = write(file, ROWS, slices)
    more = write(file, ROWS)
    file.settle()
    assert all(read(file, s).equals(part) for s, part in zip(segments, parts, strict=True))
    assert read(file, *more).equals(ROWS)
    assert directory.n_written == file.n_bytes == os.path.getsize(file.path)
    directory.remove()


def test_segments_are_read_together_as_far_as_they_were_written_alike(tmp_path: Path) -> None:
    directory = SpillDirectory(str(tmp_path))
    file = directory.file("rows", pa.schema({"x": pa.int64()}))
    small = pa.record_batch({"x": pa.array(range(40), pa.int64())})
    large = pa.record_batch({"x": pa.array(range(1 << 40, (1 << 40) + 10), pa.int64())})
    order = np.arange(39, -1, -1, dtype=np.int32)
    segments = write(file, small, [(i, 10) for i in range(0, 40, 10)], order)
    more = write(file, large)
    file.settle()
    rows = file.read([segments[0], *segments[2:], *more], 25)
    found = [some.widened(file.schema) for some in rows]
    assert [rows.num_rows for rows in found] == [20, 10, 10]
    expected = [*range(39, 29, -1), *range(19, -1, -1), *range(1 << 40, (1 << 40) + 10)]
    assert pa.Table.from_batches(found).column("x").to_pylist() == expected
    assert list(file.read([], 25)) == []
    directory.remove()


def test_settled_is_what_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To write takes its time, and whoever settles waits for it; nobody knows the segments before."""
    may_write = threading.Event()
    pwritev = os.pwritev

    def held_up(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        may_write.wait(10)
        return pwritev(descriptor, buffers, offset)

    monkeypatch.setattr(os, "pwritev", held_up)
    directory = SpillDirectory(str(tmp_path))
    file = directory.file("rows", ROWS.schema)
    segments = write(file, ROWS, [(0, 10), (10, 10)])
    threading.Timer(0.2, may_write.set).start()
    assert segments == []
    file.settle()
    assert read(file, segments[0]).equals(ROWS.slice(0, 10))
    directory.remove()


def test_what_could_not_be_written_is_never_read(tmp_path: Path) -> None:
    directory = SpillDirectory(str(tmp_path))
    file = directory.file("rows", ROWS.schema)
    write(file, ROWS)
    file.settle()
    read_only = os.open(file.path, os.O_RDONLY)
    os.dup2(read_only, file._descriptor)  # as if the disk had become read-only
    os.close(read_only)
    bad = write(file, ROWS)
    with pytest.raises(SpillError, match="cannot write"):
        file.settle()
    assert bad == []
    with pytest.raises(SpillError, match="cannot write"):
        write(file, ROWS)
    with pytest.raises(SpillError, match="cannot write"):
        file.settle()
    directory.remove()
    assert os.listdir(tmp_path) == []


def test_two_directories_share_a_disk(tmp_path: Path) -> None:
    first, second = SpillDirectory(str(tmp_path)), SpillDirectory(str(tmp_path))
    first.file("rows", ROWS.schema), second.file("rows", ROWS.schema)
    assert len(os.listdir(tmp_path)) == 2
    first.remove()
    assert len(os.listdir(tmp_path)) == 1


def test_a_forgotten_directory_is_removed(tmp_path: Path) -> None:
    directory = SpillDirectory(str(tmp_path))
    write(directory.file("rows", ROWS.schema), ROWS)
    assert len(os.listdir(tmp_path)) == 1
    del directory
    gc.collect()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("place", [0, 100, -1])
def test_a_changed_bit_is_found(place: int, tmp_path: Path) -> None:
    directory = SpillDirectory(str(tmp_path))
    file = directory.file("rows", ROWS.schema)
    segments = write(file, ROWS)
    file.settle()
    content = bytearray(Path(file.path).read_bytes())
    content[place] ^= 1
    Path(file.path).write_bytes(content)
    with pytest.raises(SpillError, match="is damaged"):
        read(file, *segments)


def test_a_truncated_file_is_found(tmp_path: Path) -> None:
    directory = SpillDirectory(str(tmp_path))
    file = directory.file("rows", ROWS.schema)
    segments = write(file, ROWS)
    file.settle()
    os.truncate(file.path, segments[0].n_bytes - 8)
    with pytest.raises(SpillError, match="is truncated"):
        read(file, *segments)


def test_the_checksum_sees_order_and_length() -> None:
    words = np.arange(1, 23, dtype=np.uint64)
    seen = {int(checksum(words[:n])) for n in range(23)}
    seen |= {int(checksum(np.roll(words, n))) for n in range(1, 22)}
    swapped = words.copy()
    swapped[[0, 4]] = swapped[[4, 0]]
    seen.add(int(checksum(swapped)))
    assert len(seen) == 23 + 21 + 1


@pytest.mark.parametrize("worth_a_thread", [0, 1 << 20])
@pytest.mark.parametrize("damage", ["flip", "truncate"])
def test_nothing_is_answered_from_damaged_rows(
    damage: str, worth_a_thread: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "WORTH_A_THREAD", worth_a_thread)
    eddy = spilled_eddy(tmp_path)
    assert isinstance(eddy.mode, SpillingStems)
    eddy.mode.directory.settle()
    for path in files_below(tmp_path):
        if damage == "truncate":
            os.truncate(path, 8)
        else:
            content = bytearray(path.read_bytes())
            for place in range(0, len(content), 64):
                content[place] ^= 255
            path.write_bytes(content)
    with pytest.raises(SpillError):
        drain(eddy)
    with pytest.raises(SpillError):
        eddy.poll()
    assert not eddy.is_done
    assert os.listdir(tmp_path) == []


def test_a_directory_that_cannot_be_used(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    eddy = Eddy(QUERY, Options(memory="30KB", spill_dir=str(missing)))
    with pytest.raises(SpillError, match=r"cannot make a spill directory in .*spill_dir"):
        eddy.push("a", batches(TABLES["a"])[0])


def test_the_directory_goes_with_the_eddy(tmp_path: Path) -> None:
    eddy = spilled_eddy(tmp_path)
    assert len(os.listdir(tmp_path)) == 1
    eddy.close()
    assert os.listdir(tmp_path) == []
    eddy = spilled_eddy(tmp_path)
    assert drain(eddy) == N
    assert os.listdir(tmp_path) == []


FULL = """
import resource, sys
from pathlib import Path
from tests.unit.test_spill_files import QUERY, TABLES, batches, Eddy, Options, SpillError
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))  # not before: bytecode is written, too
eddy = Eddy(QUERY, Options(memory="30KB", spill_dir=sys.argv[1]))
try:
    for name in "ab":
        eddy.push(name, batches(TABLES[name])[0])
except SpillError as error:
    print(error)
print("left:", list(Path(sys.argv[1]).iterdir()))
"""


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    """No file may grow beyond a limit, in a process of its own: writing fails as on a full disk."""
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert "free space there" in done.stdout, done.stderr[-1000:]
    assert "left: []" in done.stdout


@pytest.mark.parametrize("share", [0, 1.1, -1])
def test_flush_size_is_a_share(share: float) -> None:
    with pytest.raises(OptionError, match="flush_size"):
        Options(flush_size=share)
