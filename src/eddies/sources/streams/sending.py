"""How streams get to the process that plans: pickled, with large tables beside them in files.

What Spark is given with a query it keeps, and copies several times on the way. So tables above a
megabyte are written into files, which the planning process maps into memory, if that process runs on
this machine. The files are removed when this process ends.
"""

from __future__ import annotations

import atexit
import io
import shutil
import tempfile
import uuid
from functools import cache
from typing import Any

from eddies.sources.streams.tables import TableStream

__all__ = ["sent"]

_LARGE_BYTES = 1 << 20


def sent(content: object, *, is_near: bool = False) -> bytes:
    """`content` pickled, for a process on this machine if it `is_near`, else for any."""
    from pyspark.cloudpickle import CloudPickler

    class Pickler(CloudPickler):
        """Writes large tables into files."""

        def reducer_override(self, obj: Any) -> Any:  # what pickle asks for any object
            if is_near and isinstance(obj, TableStream) and obj.n_bytes > _LARGE_BYTES:
                return obj.write(f"{_folder()}/{uuid.uuid4().hex}.arrow")
            return super().reducer_override(obj)  # type: ignore[no-untyped-call]

    sink = io.BytesIO()
    Pickler(sink).dump(content)  # type: ignore[no-untyped-call]
    return sink.getvalue()


@cache
def _folder() -> str:
    folder = tempfile.mkdtemp(prefix="eddies-tables-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
