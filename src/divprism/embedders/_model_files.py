"""The files of a model folder as untrusted data: bounded JSON, links, paths.

Nothing here imports a library of models: a folder is checked before one of them sees it.
"""

import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

import psutil

__all__ = [
    "Json",
    "UnsafeModelError",
    "check_link",
    "check_sizes",
    "check_tree",
    "file_names",
    "lacking",
    "model_files",
    "quoted",
    "read_dictionary",
    "read_list",
    "relative_folder",
    "small_json_files",
]

Json: TypeAlias = dict[str, Any]
"""The content of a configuration file."""

# Ten times what real models have. Objects in memory take up to thirty times the bytes of a file.
_MAX_JSON = 8 << 20
_MAX_TOKENIZER = 48 << 20
_MAX_FILES = 5_000
# Lists of tokens or of tensors: nothing in them is a setting.
_WORD_LISTS = ("tokenizer.json", "vocab.json", "added_tokens.json")
_SUFFIXES = (".safetensors", ".bin", ".json", ".txt", ".model")
_SAFE = ".safetensors"
# Folders of a repository with the same model for other software.
_OTHER_RUNTIMES = {"onnx", "openvino"}
_SHOWN = 60  # characters of an untrusted value inside a message


class UnsafeModelError(ValueError):
    """A model folder that must not be handed to a library; the text is the reason."""


def quoted(value: object) -> str:
    """Return the beginning of an untrusted value, with control characters escaped."""
    return repr(str(value)[:_SHOWN])


def read_dictionary(path: Path) -> Json:
    """Return the dictionary in a JSON file; an empty one if there is no such file."""
    content = _read_json(path, {})
    if not isinstance(content, dict):
        raise UnsafeModelError(f"{path.name} is not readable")
    return content


def read_list(path: Path) -> list[object]:
    """Return the list in a JSON file; an empty one if there is no such file."""
    content = _read_json(path, [])
    if not isinstance(content, list):
        raise UnsafeModelError(f"{path.name} is not readable")
    return content


def _read_json(path: Path, default: object) -> object:
    try:
        _check_file(path)
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return default
    except UnsafeModelError:
        raise
    except (OSError, ValueError, RecursionError):
        raise UnsafeModelError(f"{path.name} is not readable") from None


def _check_file(path: Path) -> None:
    """Raise an error for anything but a regular file of a reasonable size."""
    status = path.stat()
    # A named pipe would block forever.
    if not stat.S_ISREG(status.st_mode):
        raise UnsafeModelError(f"{quoted(path.name)} is not a regular file")
    if path.suffix != ".json":
        return
    limit = _MAX_JSON
    if path.name in _WORD_LISTS:
        limit = _MAX_TOKENIZER
    if status.st_size > limit:
        raise UnsafeModelError(
            f"{quoted(path.name)} has {status.st_size:,} bytes; at most {limit:,} are read"
        )


def check_tree(folder: Path) -> None:
    """Check every file of a folder: regular, of bounded size, and not a link out of it.

    Raises
    ------
    UnsafeModelError
        If a file fails the check. The hub cache links to files beside the snapshot, and that is
        accepted.
    """
    inside = _boundary(folder)
    count = 0
    for parent, folders, files in os.walk(folder):
        for name in folders:
            # The hash of a model would not see what is behind the link.
            if os.path.islink(os.path.join(parent, name)):
                raise UnsafeModelError(f"the folder {quoted(name)} in it is a link; copy it")
        for name in files:
            path = Path(parent, name)
            try:
                _check_link(path, inside)
                _check_file(path)
            # Python before 3.13 raises RuntimeError for a link to itself.
            except (OSError, RuntimeError):
                raise UnsafeModelError(f"{quoted(name)} in it cannot be read") from None
        count += len(files)
        if count > _MAX_FILES:
            raise UnsafeModelError(f"it has more than {_MAX_FILES:,} files")


def check_link(path: Path, folder: Path) -> None:
    """Check that a file of a folder is not a link out of it."""
    try:
        _check_link(path, _boundary(folder))
    except (OSError, RuntimeError):
        raise UnsafeModelError(f"{quoted(path.name)} cannot be read") from None


def _check_link(path: Path, inside: Path) -> None:
    if path.is_symlink() and not path.resolve().is_relative_to(inside):
        raise UnsafeModelError(f"{quoted(path.name)} in it is a link out of the folder; copy it")


def check_sizes(folder: Path, names: Iterable[str]) -> None:
    """Raise an error for files that no memory of this computer could hold, before they are read."""
    size = sum((folder / name).stat().st_size for name in names)
    limit = psutil.virtual_memory().total
    if size > limit:
        raise UnsafeModelError(
            f"its files have {size / 1e9:,.1f} GB, more than the memory of this computer "
            f"({limit / 1e9:,.1f} GB)"
        )


def _boundary(folder: Path) -> Path:
    """Return the folder that links must stay in."""
    real = folder.resolve()
    repository = real.parent.parent
    if real.parent.name == "snapshots" and (repository / "blobs").is_dir():
        return repository
    return real


def small_json_files(folder: Path) -> Iterator[tuple[Path, object]]:
    """Yield the path and the content of every JSON file that may have settings."""
    for path in sorted(folder.rglob("*.json")):
        is_list = path.name in _WORD_LISTS or path.name.endswith(".index.json")
        if not is_list and path.is_file():
            yield path, _read_json(path, {})


def relative_folder(folder: Path, path: object) -> Path:
    """Return a folder inside a model folder, by the path that a file of the model gives.

    Raises
    ------
    UnsafeModelError
        If the path is no text, or leads out of the folder.
    """
    if not isinstance(path, str) or len(path) > 255 or not path.isprintable():
        raise UnsafeModelError(f"it names a folder {quoted(path)}")
    parts = PurePosixPath(path).parts
    # A colon is part of a drive, and a backslash a separator, on Windows.
    if path.startswith("/") or ".." in parts or "\\" in path or ":" in path:
        raise UnsafeModelError(f"it names a folder outside itself, {quoted(path)}")
    return folder.joinpath(*parts)


def file_names(folder: Path) -> list[str]:
    """Return the files of a folder and of those inside it, relative to it."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return [path.relative_to(folder).as_posix() for path in paths]


def model_files(names: Iterable[str]) -> list[str]:
    """Return those files of a repository that a model consists of, sorted.

    Pickled weights count only in folders without safetensors.
    """
    candidates = [PurePosixPath(name) for name in names if _may_belong(PurePosixPath(name))]
    safe_folders = {path.parent for path in candidates if path.suffix == _SAFE}
    chosen = []
    for path in candidates:
        is_weights = path.name.startswith("pytorch_model") and path.parent not in safe_folders
        # Other .bin files are states of optimizers, training arguments and the like.
        if path.suffix != ".bin" or is_weights:
            chosen.append(path.as_posix())
    return sorted(chosen)


def _may_belong(path: PurePosixPath) -> bool:
    # Hidden files belong to git and to the download itself.
    is_hidden = any(part.startswith(".") for part in path.parts)
    return path.suffix in _SUFFIXES and not is_hidden and _OTHER_RUNTIMES.isdisjoint(path.parts)


def lacking(folder: Path, needs: tuple[str, ...]) -> str | None:
    """Return what an incomplete folder lacks, or None if it is complete."""
    names = set(model_files(file_names(folder)))
    if not any(name.endswith((_SAFE, ".bin")) for name in names):
        return "weights (*.safetensors, pytorch_model*.bin)"
    missing_shards = _missing_shards(folder, names)
    if missing_shards:
        return min(missing_shards)
    if needs and not any((folder / name).is_file() for name in needs):
        return " or ".join(needs)
    return None


def _missing_shards(folder: Path, names: set[str]) -> set[str]:
    """Return the files that an index of sharded weights lists, but that are not there."""
    suffixes = [f"{_SAFE}.index.json"]
    # With safetensors, an index of pickled weights is left over: those are not downloaded.
    if not any(name.endswith(_SAFE) for name in names):
        suffixes.append(".bin.index.json")
    missing: set[str] = set()
    for name in names:
        if name.endswith(tuple(suffixes)):
            parent = PurePosixPath(name).parent
            missing.update((parent / shard).as_posix() for shard in _shards(folder / name))
    return missing - names


def _shards(index: Path) -> set[str]:
    """Return the names of files that an index of sharded weights lists."""
    names = read_dictionary(index).get("weight_map")
    if not isinstance(names, dict):
        raise UnsafeModelError(f"{index.name} is not readable")
    shards = set()
    for name in names.values():
        # Beside the index: a path could lead anywhere.
        if not isinstance(name, str) or re.fullmatch(r"\w[\w.-]*", name) is None:
            raise UnsafeModelError(f"{index.name} names the file {quoted(name)}")
        shards.add(name)
    return shards
