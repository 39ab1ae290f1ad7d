"""Parquet pages: single rows of a column of a local file, without decoding the rows between them."""

from eddies.sources.pages.chunk import ColumnChunk, PageScratch
from eddies.sources.pages.column import PageColumn
from eddies.sources.pages.layout import Layout, layout_of

__all__ = ["ColumnChunk", "Layout", "PageColumn", "PageScratch", "layout_of"]
