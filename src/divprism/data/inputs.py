"""What a user passes as outputs and prompts, as `Samples`: paths, texts, images, ids or arrays."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from divprism.core.arrays import Array, host_rows, is_array_api_obj, to_numpy
from divprism.core.kernels import Categorical, Kernel
from divprism.core.validation import as_numpy, check_pairing
from divprism.data.columns import plain_column
from divprism.data.dask_arrays import computed
from divprism.data.items import WAY_OUT_OF_WAVEFORMS, Item, texts
from divprism.data.media import media_kind
from divprism.data.readers.content_checks import warn_about_content
from divprism.data.readers.fields import Fields, Findings
from divprism.data.readers.guards import is_url
from divprism.data.readers.load import load_fields
from divprism.data.readers.values import as_file, image_item, is_image
from divprism.data.samples import Samples
from divprism.data.tables_in_memory import is_table, type_name
from divprism.data.wording import NOUNS, counted, escaped
from divprism.errors import ArgumentError, DataError

__all__ = ["as_arrays", "as_items", "as_samples", "model_keyword"]


_WAVEFORM = 1_000  # numbers from which on a row may be the samples of a sound
_BY_NAME = Fields(suffix="")
"""Fields that are recognised by their names, in the vocabulary of `evaluate`."""


def as_samples(
    x: object, t: object, kernel_t: Kernel | None, columns: Fields = _BY_NAME
) -> Samples:
    """Return outputs `x` and prompts `t` as samples, whatever their form.

    Paths and tables in memory are read, with the fields in `columns`; texts and images become
    items, Dask arrays are computed, and other arrays stay as they are. If `kernel_t` compares
    prompts as ids, prompt texts become numbers.
    """
    if x is None:
        raise ArgumentError(
            "`x` is None; pass outputs: an array, texts, images, Samples, or a path."
        )
    _require_order(x, "x")
    _require_order(t, "t")
    keywords = ("output", "prompt", "model", "quality")
    named = [name for name in keywords if getattr(columns, name) is not None]
    if isinstance(x, str | Path):
        if t is not None and not isinstance(t, str | Path):
            raise ArgumentError("`t` must be a path too if `x` is the path of a file or folder.")
        samples = load_fields(x, t, columns)
    elif is_table(x, is_named=bool(named)):
        if t is not None:
            raise ArgumentError(
                f"`t` must be left out if `x` is a table ({type_name(x)}): name its column of "
                "prompts as `prompt`, or pass columns as `x` and `t`."
            )
        samples = load_fields(x, None, columns)
    elif named:
        raise ArgumentError(
            f"`{named[0]}` names a column of a table or file, but `x` is a {type_name(x)}; "
            "dp.Samples(outputs, prompts, models, quality=...) holds columns of your own."
        )
    elif isinstance(x, Samples):
        if t is not None:
            raise ArgumentError("`x` is Samples, which hold their own prompts; leave out `t`.")
        outputs, prompts = computed(x.outputs, "x"), computed(x.prompts, "t")
        samples = replace(x, outputs=outputs, prompts=prompts)
    elif isinstance(x, Mapping):
        raise ArgumentError("`x` is a mapping; to score several models, pass it to dp.compare.")
    elif _is_pair(x) and t is None:
        raise ArgumentError("give outputs and prompts as dp.Samples(x, t), not as a tuple.")
    else:
        samples = _samples_in_memory(x, t, as_ids=isinstance(kernel_t, Categorical))
    outputs, prompts = _native(samples.outputs, "x"), _native(samples.prompts, "t")
    samples = replace(samples, outputs=outputs, prompts=prompts)
    if isinstance(kernel_t, Categorical):
        return samples.with_prompt_ids()
    return samples


def model_keyword(x: object) -> str:
    """Return what names the field of models for a source, in messages to its caller.

    Samples come from `load`, which takes `model_field`; anything else is read by `evaluate` or
    `compare`, which take `model`.
    """
    sources = [x]
    if isinstance(x, Mapping):
        sources = list(x.values())
    if any(isinstance(source, Samples) for source in sources):
        return "model_field"
    return "model"


def _native(side: Any, name: str) -> Any:
    """Return arrays in the byte order and the layout that all are scored in.

    Hashes depend on bytes, and the last bit of a product on the order in memory and on the library
    that computes it, so tensors in host memory are scored by NumPy. A list that `Samples` could
    not make an array of is refused.
    """
    if isinstance(side, list) and side:
        side = as_numpy(side, name)
    side = host_rows(side)
    if isinstance(side, np.ndarray) and not side.dtype.isnative:
        return side.astype(side.dtype.newbyteorder("="))
    return side


def _require_order(side: object, name: str) -> None:
    """Refuse sets: which output goes with which prompt depends on the order."""
    if isinstance(side, Set):
        kind = type(side).__name__
        raise ArgumentError(f"`{name}` is a {kind}, whose order is not defined; pass a list.")


def _is_pair(x: object) -> bool:
    """Whether `x` is (outputs, prompts), which would otherwise be taken for two outputs."""
    return isinstance(x, tuple) and len(x) == 2 and all(hasattr(side, "ndim") for side in x)


def _samples_in_memory(x: Array, t: Array | None, *, as_ids: bool) -> Samples:
    x, t = plain_column(computed(x, "x")), plain_column(computed(t, "t"))
    findings = Findings()
    outputs = as_items(x, "output", findings)
    # Names of files that are compared as ids stay texts: no image has to be opened for that.
    prompts = as_items(t, "prompt", findings, read_files=not as_ids)
    has_items = outputs is not None or prompts is not None
    # Two arrays are checked later, together with their entries. Items have to be checked now,
    # because leaving out the pairs with blank texts needs sides of equal length.
    if has_items and t is not None:
        check_pairing(len(x), len(t), "t")
    samples = Samples(_items_or_data(outputs, x), _items_or_data(prompts, t)).without_empty()
    warn_about_content(samples, findings)
    warnings = (*samples.warnings, *findings.warnings)
    return replace(samples, notes=tuple(findings.notes), warnings=warnings)


def _items_or_data(items: tuple[Item, ...] | None, data: Array) -> Array:
    if items is not None:
        return items
    # A tuple marks a side of items, so a tuple of rows or ids becomes a list.
    if isinstance(data, tuple):
        return list(data)
    return data


def as_items(
    values: object, name: str, findings: Findings, *, read_files: bool = True
) -> tuple[Item, ...] | None:
    """Return strings, paths or PIL images as items, or None for anything else, such as arrays.

    Paths, and strings that all name existing images, videos or sounds, are read as these.
    """
    if not isinstance(values, list | tuple) or len(values) == 0:
        return None
    if all(isinstance(value, Item) for value in values):
        return tuple(values)
    if all(isinstance(value, Path) for value in values):
        return _files(list(values), name)
    if all(isinstance(value, str) for value in values):
        if read_files:
            _refuse_urls(values, name)
        if read_files and _name_files(values):
            files = _files([Path(value) for value in values], name)
            count = counted(len(files), f"{name} names", f"{name}s name")
            findings.note(f"{count} existing files, which are read as {NOUNS[files[0].modality]}s")
            return files
        return texts(values, name)
    if all(map(is_image, values)):
        return tuple(image_item(image, f"{name} {index}") for index, image in enumerate(values))
    _refuse_missing(values, name)
    _refuse_waveforms(values, name)
    return None


def _refuse_missing(values: Sequence[object], name: str) -> None:
    """Refuse missing values, which would be called values of another type later."""
    missing = [index for index, value in enumerate(values) if _is_missing(value)]
    # NaN among numbers is a number that is refused as such.
    if not missing or all(isinstance(value, float) for value in values):
        return
    way_out = "leave these pairs out"
    if any(isinstance(value, str) for value in values):
        way_out += ", or put empty texts in their place, which are skipped and counted"
    are = counted(len(missing), f"{name} is", f"{name}s are")
    raise DataError(f"{are} missing (first: {name} {missing[0]}); {way_out}.")


def _refuse_waveforms(values: Sequence[object], name: str) -> None:
    """Refuse long arrays of different lengths: vectors of one side have one length."""
    lengths = set()
    for value in values:
        if not isinstance(value, np.ndarray) or value.ndim != 1 or len(value) < _WAVEFORM:
            return
        lengths.add(len(value))
    if len(lengths) > 1:
        shortest, longest = min(lengths), max(lengths)
        raise DataError(
            f"{name}s are arrays of {shortest:,} to {longest:,} numbers, which are no vectors. If "
            f"they are waveforms, {WAY_OUT_OF_WAVEFORMS}."
        )


def _is_missing(value: object) -> bool:
    """Whether a value is None, NaN, or what pandas puts into columns of texts instead."""
    if value is None or (isinstance(value, float) and value != value):
        return True
    return type(value).__name__ in ("NAType", "NaTType")


def _refuse_urls(values: Sequence[str], name: str) -> None:
    """Refuse URLs of media: as texts they would get a score that means nothing."""
    if all(is_url(value) and media_kind(value) for value in values):
        raise DataError(
            f"all {name}s are URLs of images, videos or sounds (first: "
            f"{escaped(values[0])[:200]}), and nothing is downloaded: download them, and pass "
            "their paths."
        )


def _name_files(values: Sequence[str]) -> bool:
    """Whether all of some strings look like names of media files, and one of them exists."""
    if not all(media_kind(value) for value in values):
        return False
    return any(_exists(Path(value)) for value in values)


def _files(paths: Sequence[Path], name: str) -> tuple[Item, ...]:
    """Return images, videos or sounds by their paths; a missing or unsupported file is an error."""
    items = []
    for index, path in enumerate(paths):
        kind = media_kind(str(path))
        if kind is None:
            raise DataError(
                f"{name} {index} ({escaped(path)}) is not an image, video or sound that is read."
            )
        if not _exists(path):
            raise DataError(f"{name} {index} names the file {escaped(path)}, which does not exist.")
        items.append(as_file(path, kind, f"{name} {index}"))
    return tuple(items)


def _exists(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that no file system takes
        return False


def as_arrays(samples: Samples) -> Samples:
    """Return the samples with lists and ids as NumPy; items and rows of numbers stay as they are.

    Rows stay in their library, because they are scored on the device where they are.
    """
    return replace(samples, outputs=_as_array(samples.outputs), prompts=_as_array(samples.prompts))


def _as_array(data: Array) -> Array:
    if data is None or isinstance(data, tuple):
        return data
    if not is_array_api_obj(data):
        return np.asarray(data)
    if data.ndim == 2:
        return data
    return to_numpy(data)
