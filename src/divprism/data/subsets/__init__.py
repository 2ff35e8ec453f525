"""A part of a source, written in the layout that the source has."""

from divprism.data.subsets.layouts import Layout, layout_of, write_subset
from divprism.data.subsets.named_rows import rows_in

__all__ = ["Layout", "layout_of", "rows_in", "write_subset"]
