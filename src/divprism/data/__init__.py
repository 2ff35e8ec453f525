"""Files and folders of any common layout, read as paired samples."""
