"""Data: files of any common layout become paired samples."""
