"""Sources read progressively: what `eddies.online` and streaming queries read.

`stream_of` is imported on first use: the process that plans a query has no use for it, and starts
faster without the sources.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddies.sources.streams.base import Offset, Part, Stream

if TYPE_CHECKING:
    from eddies.sources.streams.making import stream_of

__all__ = ["Offset", "Part", "Stream", "stream_of"]


def __getattr__(name: str) -> object:
    if name != "stream_of":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from eddies.sources.streams.making import stream_of

    return stream_of
