"""`divprism doctor`: what is installed, and which extra brings what is not."""

import os
import platform
import re
import sys
from importlib import metadata

import typer

from divprism.embedders.cache import default_folder
from divprism.version import __version__

_NOT_FOR_USERS = ("all", "bench", "lint", "test")  # extras


def doctor() -> None:
    """Print what is installed: the first lines of a bug report."""
    system = f"{platform.platform()}, {os.cpu_count()} cores"
    typer.echo(f"divprism {__version__}")
    typer.echo(f"python {platform.python_version()} on {system} ({sys.executable})")
    extras: dict[str, str] = {}
    for requirement in metadata.requires("divprism") or []:
        # Reads "numpy>=1.26", or "av>=12; extra == 'video'" for what an extra brings.
        name, extra = re.fullmatch(r"([\w.-]+)[^;]*(?:;.*'(.*)')?", requirement).groups()
        if extra not in _NOT_FOR_USERS:
            extras.setdefault(name, extra)
    for name, extra in extras.items():
        try:
            typer.echo(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            typer.echo(f"{name} is not installed: pip install 'divprism[{extra}]'")
    typer.echo(f"vectors are cached in {default_folder()}")
