"""Where the files of a model are, and loading them in silence; torch is imported only when there is something to load."""

import hashlib
import json
import logging
import pickle
import platform
import re
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any

from divprism.embedders.base import check_batch_size, file_hash
from divprism.errors import ArgumentError, MissingExtraError, MissingModelError

__all__ = [
    "Source",
    "check_running",
    "device_of",
    "explained",
    "import_library",
    "loading",
    "quiet",
    "read_json",
]

_DEFAULTS = {
    "text": "wordllama",
    "image": "efficientnet-lite0",
    "video": "efficientnet-lite0-frames",
}
_PRECISIONS = ("float32", "float16", "bfloat16")
_SUFFIXES = (".safetensors", ".bin", ".json", ".txt", ".model")
_FOREIGN = {
    "onnx",
    "openvino",
}  # folders of a repository that hold the same model for other software
_LOADING = (
    threading.RLock()
)  # imports and loading change settings of the process for a moment: one thread at a time


@dataclass(frozen=True)
class Source:
    """A folder here, or a snapshot in the hub cache.

    `anchors` are files of which one tells that this is a model at all, `needs` those of which one goes with its modality.
    """

    model: str
    anchors: tuple[str, ...]
    needs: tuple[str, ...]
    modality: str
    offline: bool

    @property
    def name(self) -> str:
        """Its name on the hub; of a folder the last part, since results should not depend on where things lie."""
        return self.path.resolve().name if self._local else self.model

    @property
    def path(self) -> Path:
        """The name as a path."""
        return Path(self.model).expanduser()

    @property
    def _local(self) -> bool:
        return self.path.is_dir()

    def anchor(self) -> Any:
        """What the first anchor holds; fetched alone, before the weights."""
        return read_json(self.config_folder() / self.anchors[0])

    def config_folder(self) -> Path:
        """Where an anchor is."""
        return self._find() or self._download(self.anchors)

    def folder(self) -> Path:
        """Where everything is."""
        folder = self._find()
        if folder is not None:
            lack = _lacking(folder, self.needs)
            if lack is None:
                return folder
            if self._local:
                raise self.missing(f"the folder has no {lack}")
        return self._download(None)

    def hash(self) -> str:
        """SHA-256 over names and hashes of the files that are used."""
        folder = self.folder()
        digest = hashlib.sha256()
        for name in _used(_names(folder)):
            digest.update(f"{name}\0{file_hash(folder / name)}\n".encode())
        return f"sha256:{digest.hexdigest()}"

    def _find(self) -> Path | None:
        """The folder or snapshot with an anchor in it, without asking anybody."""
        if self._local:
            if not any((self.path / name).is_file() for name in self.anchors):
                raise self.missing(f"the folder has no {' or '.join(self.anchors)}")
            return self.path
        if re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", self.model) is None:
            raise self.missing("there is no such folder")
        hub = import_library("huggingface_hub")
        for name in self.anchors:
            found = hub.try_to_load_from_cache(self.model, name)
            if isinstance(found, str):
                return Path(found).parent
        return None

    def _download(self, names: Sequence[str] | None) -> Path:
        """Fetch some files, or all that are used, into the hub cache."""
        hub = import_library("huggingface_hub")
        if self.offline or hub.constants.HF_HUB_OFFLINE:
            raise self.missing(
                "it is neither a folder here nor complete in the hub cache, and the hub is not asked (offline)"
            )
        try:
            with _LOADING, quiet("huggingface_hub", bars=True):
                if names is None:
                    names = _used(
                        entry.rfilename
                        for entry in hub.HfApi().model_info(self.model, timeout=20).siblings or ()
                    )
                folder = Path(hub.snapshot_download(self.model, allow_patterns=list(names)))
        except Exception as error:  # of the hub, of the network beneath it, of the disk
            tried = "it is neither a folder here nor in the hub cache, and "
            known = isinstance(error, hub.errors.RepositoryNotFoundError)
            raise self.missing(
                tried
                + (
                    "the hub has no model of that name, or none that is open to you"
                    if known
                    else f"the hub cannot be reached ({_brief(error)})"
                )
            ) from None
        lack = _lacking(folder, self.needs) if set(names) != set(self.anchors) else None
        if lack is not None or not any((folder / name).is_file() for name in self.anchors):
            raise self.missing(f"the hub's copy has no {lack or ' or '.join(self.anchors)}")
        return folder

    def missing(self, reason: str) -> MissingModelError:
        """The error that says why not, and what works without a download."""
        return MissingModelError(f"cannot load {self.model}: {reason}. {_way_out(self.modality)}")


def _way_out(modality: str) -> str:
    if modality in _DEFAULTS:
        return f"The embedded default needs no download: --embedder-x {_DEFAULTS[modality]}."
    listed = ", ".join(f"{name} ({modality})" for modality, name in _DEFAULTS.items())
    return f"The embedded defaults need no download: {listed}."


def _names(folder: Path) -> Iterator[str]:
    return (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def _used(names: Iterable[str]) -> list[str]:
    """Those files of a repository that a model is made of, sorted; pickled weights only where there are no others."""
    parts = {name: PurePosixPath(name) for name in names}
    chosen = [
        name
        for name, path in parts.items()
        if path.suffix in _SUFFIXES
        and _FOREIGN.isdisjoint(path.parts)
        and not any(part[0] == "." for part in path.parts)
    ]
    safe = {parts[name].parent for name in chosen if name.endswith(".safetensors")}
    return sorted(
        name
        for name in chosen
        if not name.endswith(".bin")
        or (parts[name].name.startswith("pytorch_model") and parts[name].parent not in safe)
    )


def _lacking(folder: Path, needs: tuple[str, ...]) -> str | None:
    """What an incomplete folder lacks."""
    names = set(_used(_names(folder)))
    if not any(name.endswith((".safetensors", ".bin")) for name in names):
        return "weights (*.safetensors, pytorch_model*.bin)"
    for name in names:
        if name.endswith((".safetensors.index.json", ".bin.index.json")):
            shards = set(read_json(folder / name).get("weight_map", {}).values())
            beside = {(PurePosixPath(name).parent / shard).as_posix() for shard in shards}
            if not beside <= names and (
                ".bin." not in name or not any(other.endswith(".safetensors") for other in names)
            ):
                return min(beside - names)
    if needs and not any((folder / name).is_file() for name in needs):
        return " or ".join(needs)
    return None


def read_json(path: Path, kind: type = dict) -> Any:
    """What a JSON file holds, a dictionary or a list; an empty one if it is not there."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return kind()
    except (OSError, ValueError, RecursionError):
        content = None
    if not isinstance(content, kind):
        raise MissingModelError(
            f"cannot load the model in {path.parent}: {path.name} is not readable. {_way_out('')}"
        )
    return content


def device_of(device: str) -> str:
    """The device that "auto" stands for; torch is asked only where there may be more than a CPU."""
    if device != "auto":
        return device
    drivers = ("nvidia0", "nvidiactl", "nvhost-ctrl", "kfd", "dxg")
    if platform.system() == "Linux" and not any(Path("/dev", name).exists() for name in drivers):
        return "cpu"
    torch = import_library("torch")
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def import_library(module: str) -> Any:
    """An optional package, or the sentence that says how to install it."""
    try:
        with _LOADING, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return import_module(module)
    except ImportError:
        name = module.replace("_", "-")
        raise MissingExtraError(
            f"This embedder needs {name}, which is not installed: pip install 'divprism[models]'."
        ) from None


_silenced: dict[str, list[int]] = {}  # logger: how many want it silent, and its level before


@contextmanager
def quiet(*loggers: str, bars: bool = False) -> Iterator[None]:
    """Loggers of other libraries speak of errors only, and draw no bars, until the last of nested or parallel users is done."""
    with _LOADING:
        for name in loggers:
            count, level = _silenced.get(name, [0, logging.getLogger(name).level])
            _silenced[name] = [count + 1, level]
            logging.getLogger(name).setLevel(logging.CRITICAL)
        if bars:
            hub = import_library("huggingface_hub").utils
            shown = not hub.are_progress_bars_disabled()
            hub.disable_progress_bars()
    try:
        yield
    finally:
        with _LOADING:
            for name in loggers:
                count, level = _silenced.pop(name)
                if count > 1:
                    _silenced[name] = [count - 1, level]
                else:
                    logging.getLogger(name).setLevel(level)
            if bars:
                (hub.enable_progress_bars if shown else hub.disable_progress_bars)()


@contextmanager
def explained(source: Source) -> Iterator[None]:
    """What goes wrong while something is loaded is told in one sentence; one thread at a time, warnings are not shown."""
    with _LOADING, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        except (MissingModelError, MissingExtraError):
            raise
        except ImportError as error:
            raise MissingExtraError(
                f"{source.model} needs a package that is not installed ({_brief(error)}): pip install 'divprism[models]'."
            ) from None
        except pickle.UnpicklingError:
            raise source.missing(
                "its pickled weights are broken or hold more than tensors; they are not opened"
            ) from None
        except (
            Exception
        ) as error:  # configurations and weights break in as many ways as there are models
            raise source.missing(_brief(error)) from None


@contextmanager
def loading(source: Source, *modules: str) -> Iterator[Any]:
    """The last of some modules, without its bars and log lines, to load something with."""
    library = [import_library(module) for module in modules][-1]
    bars = import_library("transformers").utils.logging
    silent = ("transformers", "sentence_transformers", "huggingface_hub")
    with explained(source), quiet(*silent, bars=True):
        shown = bars.is_progress_bar_enabled()
        bars.disable_progress_bar()
        try:
            yield library
        finally:
            if shown:
                bars.enable_progress_bar()


def _brief(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".:")[:200] if lines else type(error).__name__


def check_running(device: str, precision: str, batch_size: int) -> None:
    """Refuse a device, a precision or a batch size that no torch model runs with."""
    if re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", device) is None:
        raise ArgumentError(
            f"`device` must be auto, cpu, cuda, cuda:0 and so on, or mps; got {device!r}."
        )
    if precision not in _PRECISIONS:
        raise ArgumentError(
            f"`precision` must be one of {', '.join(_PRECISIONS)}; got {precision!r}."
        )
    check_batch_size(batch_size)
