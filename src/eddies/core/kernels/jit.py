"""The one place where compile options are set.

`@kernel(signature, ...)` compiles at import for explicit signatures and keeps the machine code on
disk, so that only the first process on a machine pays for compilation. `@inlined` is for small
functions used inside kernels. Input arrays are declared read-only, because Arrow buffers are and a
read-only parameter accepts both; without this every kernel would be compiled three times.

The cache lies beside the package when that is writable, else in the user's cache folder, else in a
folder of the temporary directory that only this user may enter: machine code is never loaded from a
place others can write. Floating-point rules are not relaxed.

With `NUMBA_DISABLE_JIT=1` everything runs as plain Python, slowly, for debuggers and coverage.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar, cast

import numba
from numba import types

__all__ = [
    "BRIEF_PROBE",
    "BRIEF_ROWS",
    "JIT_DISABLED",
    "boolean",
    "brief",
    "f64",
    "i32",
    "i64",
    "inlined",
    "kernel",
    "ro",
    "rw",
    "u8",
    "u64",
]

F = TypeVar("F", bound=Callable[..., Any])  # kernels have many shapes; numba checks them, not mypy

_config: Any = numba.config  # its settings are made at import and have no types
JIT_DISABLED: bool = bool(_config.DISABLE_JIT)
BRIEF_PROBE = 2048  # the same of one that looks every row up
BRIEF_ROWS = 4096  # a kernel that passes once over so many is through in a few microseconds

boolean, u8, i32, i64, u64, f64 = (
    types.boolean,
    types.uint8,
    types.int32,
    types.int64,
    types.uint64,
    types.float64,
)


def ro(dtype: types.Type) -> types.Array:
    """A contiguous vector the kernel only reads; accepts read-only and writable arrays."""
    return types.Array(dtype, 1, "C", readonly=True)


def rw(dtype: types.Type) -> types.Array:
    """A contiguous vector the kernel writes."""
    return types.Array(dtype, 1, "C")


def _choose_cache_folder() -> None:
    """Point numba at a folder it can write, where its own two choices would make imports fail."""
    if _config.CACHE_DIR:
        return
    beside_package = Path(__file__).resolve().parent
    home_cache = Path(os.path.expanduser("~"))
    if os.access(beside_package, os.W_OK) or os.access(home_cache, os.W_OK):
        return
    folder = Path(tempfile.gettempdir()) / f"eddies-kernels-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        folder = Path(tempfile.mkdtemp(prefix="eddies-kernels-"))
    _config.CACHE_DIR = str(folder)


_choose_cache_folder()


def kernel(*signatures: Any) -> Callable[[F], F]:  # numba's signature types are not public
    """Compile a function for `signatures` now, or load it from the cache."""
    compile_with: Any = numba.njit(
        list(signatures), nogil=True, cache=True, boundscheck=False, error_model="numpy"
    )
    return cast(Callable[[F], F], compile_with)


def brief(compiled: F) -> F:
    """The same kernel for few rows (`BRIEF_ROWS`), which keeps Python's lock.

    To let the lock go invites whoever waits for it. It takes tens of microseconds to wake, and then
    the kernel, which took two, must wait in turn.
    """
    if JIT_DISABLED:
        return compiled
    dispatcher: Any = compiled
    function = dispatcher.py_func
    name = f"{function.__name__}_brief"  # numba's cache goes by names
    twin = FunctionType(function.__code__, function.__globals__, name)
    twin.__qualname__ = name
    twin.__module__ = function.__module__
    compile_with: Any = numba.njit(
        list(dispatcher.nopython_signatures), cache=True, boundscheck=False, error_model="numpy"
    )
    return cast(F, compile_with(twin))


def inlined(function: F) -> F:
    """A function for use inside kernels; it costs no call there."""
    return cast(F, numba.njit(inline="always")(function))
