"""Which processes keep a cell of a stream."""

from __future__ import annotations

import psutil

from eddies.streaming.place import Place

__all__ = ["keepers_at"]


def keepers_at(place: Place) -> list[int]:
    """The processes that keep the cell of `place`; one that starts counts, too."""
    wanted = f"eddies.streaming.keeper {place.path} "
    processes = psutil.process_iter(["cmdline"])
    return [p.pid for p in processes if wanted in " ".join([*(p.info["cmdline"] or ()), ""])]
