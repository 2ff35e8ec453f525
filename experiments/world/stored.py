"""Results that take minutes are kept on disk, under a key of everything that they depend on."""

import hashlib
import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from safetensors.numpy import load_file, save_file

FOLDER = Path(__file__).parent.parent.parent / ".cache" / "world"


def stored(
    module: ModuleType, settings: object, make: Callable[[], dict[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """Arrays by name, made once for each version of a module and each value of its settings."""
    text = f"{inspect.getsource(module)}\n{settings!r}\n{torch.__version__}"
    key = hashlib.sha256(text.encode()).hexdigest()[:16]
    path = FOLDER / f"{module.__name__.rpartition('.')[2]}-{key}.safetensors"
    if path.exists():
        return load_file(path)
    arrays = {name: np.ascontiguousarray(value) for name, value in make().items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    # Renamed when complete, so that another process never reads half a file.
    part = path.with_suffix(f".{np.random.default_rng().integers(2**31)}")
    save_file(arrays, part)
    part.replace(path)
    return arrays
