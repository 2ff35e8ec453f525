"""Readers: files and folders to paired samples, or one sentence on why not."""

from divprism.data.readers.arrays import read_array
from divprism.data.readers.load import load

__all__ = ["load", "read_array"]
