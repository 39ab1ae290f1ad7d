"""What a stream around another one takes over from it."""

from __future__ import annotations

from eddies.sources.streams.base import Stream

__all__ = ["Wrapped"]


class Wrapped:
    """The facts about `stream`, for those who change only when or how its rows are had."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    @property
    def label(self) -> str:
        return self._stream.label

    @property
    def n_rows(self) -> int | None:
        return self._stream.n_rows

    @property
    def is_mirrored(self) -> bool:
        return self._stream.is_mirrored

    @property
    def key(self) -> tuple[str, ...]:
        return self._stream.key
