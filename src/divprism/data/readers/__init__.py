"""Readers of files and folders: paired samples, or an error in one sentence."""

from divprism.data.readers.arrays import read_array
from divprism.data.readers.joined_arrays import read_arrays
from divprism.data.readers.load import load

__all__ = ["load", "read_array", "read_arrays"]
