"""Sources read progressively: what `eddies.online` and streaming queries read."""

from __future__ import annotations

from eddies.sources.streams.base import Offset, Part, Stream
from eddies.sources.streams.making import stream_of

__all__ = ["Offset", "Part", "Stream", "stream_of"]
