"""Access modules: how the rows of a relation are got, by scans and by look-ups in indexes."""

from __future__ import annotations

from eddies.core.access.method import Access, IndexAccess, Lookup
from eddies.core.access.requests import LookupExecutor, LookupReply, LookupRequest

__all__ = [
    "Access",
    "IndexAccess",
    "Lookup",
    "LookupExecutor",
    "LookupReply",
    "LookupRequest",
]
