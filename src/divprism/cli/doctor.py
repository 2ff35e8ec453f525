"""`divprism doctor`: what is installed, and what that makes possible."""

import importlib.metadata
import os
import platform
import sys

import typer

from divprism.version import __version__

__all__ = ["doctor"]

_REQUIRED = ["numpy", "scipy", "array-api-compat", "typer", "rich"]
_EXTRAS = {
    "scikit-learn": "K-means labels for the cluster scores: pip install 'divprism[cluster]'",
    "torch": "scoring tensors where they live (divprism itself does not need it)",
}


def doctor() -> None:
    """Say what this installation has, for a bug report or a first look."""
    typer.echo(f"divprism {__version__}")
    typer.echo(f"python {platform.python_version()} on {platform.platform()}, {os.cpu_count()} cores ({sys.executable})")
    for name in _REQUIRED:
        typer.echo(f"{name} {_version(name) or 'MISSING: reinstall divprism'}")
    for name, purpose in _EXTRAS.items():
        found = _version(name)
        typer.echo(f"{name} {found}" if found else f"{name} not installed; for {purpose}")


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
