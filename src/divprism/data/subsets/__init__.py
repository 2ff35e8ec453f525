"""A part of a source, written in the layout that the source has."""

from divprism.data.subsets.layouts import Layout, layout_of, write_subset

__all__ = ["Layout", "layout_of", "write_subset"]
