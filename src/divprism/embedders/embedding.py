"""Samples to vectors: the default embedder of each modality, and a folder of vectors to score later."""

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from divprism.core.arrays import is_array_api_obj, to_numpy
from divprism.core.kernels import Categorical, Kernel
from divprism.core.validation import check_pairing, holds_text
from divprism.data.files import write_whole
from divprism.data.readers.load import EMBEDDING, load
from divprism.data.samples import Image, Item, Samples, Text, texts
from divprism.embedders import (
    Cache,
    EfficientNetLite0,
    Embedded,
    Embedder,
    FrameMean,
    Function,
    WordLlama,
    embed_items,
)
from divprism.embedders.pipeline import Progress
from divprism.errors import ArgumentError, DataError

__all__ = ["DEFAULTS", "as_items", "as_samples", "embed", "resolve_embedder", "save_embedded"]

DEFAULTS: dict[str, Embedder] = {
    "text": WordLlama(),
    "image": EfficientNetLite0(),
    "video": FrameMean(),
}
"""The embedder of each modality where none is named: fixed, installed with an extra, never downloaded."""

_NOUNS = {"text": "texts", "image": "pictures", "video": "clips"}
_SIDES = {"x": "outputs", "t": "prompts"}


def as_items(values: Any, name: str) -> tuple[Item, ...] | None:
    """Strings or PIL pictures as items; None for anything else, which is left to be read as an array."""
    if isinstance(values, np.ndarray) and values.ndim == 1 and holds_text(values):
        values = values.tolist()
    if not isinstance(values, Sequence) or isinstance(values, str | bytes) or not len(values):
        return None
    if all(isinstance(value, Item) for value in values):
        return tuple(values)
    if all(isinstance(value, str) for value in values):
        return texts(values, name)
    if all(type(value).__module__.startswith("PIL.") for value in values):
        return tuple(Image(_pixels(value), f"{name} {place}") for place, value in enumerate(values))
    return None


def as_samples(x: Any, t: Any, kernel_t: Kernel | None) -> Samples:
    """Whatever was given, as samples: read if it is a path, as items if it is texts or pictures, else as it is.

    Prompts are numbered rather than embedded if `kernel_t` takes them as ids.
    """
    if isinstance(x, str | Path):
        if t is not None and not isinstance(t, str | Path):
            raise ArgumentError("prompts of a file or folder must be a file or folder too.")
        samples = load(x, t)
    elif isinstance(x, Samples):
        if t is not None:
            raise ArgumentError("`x` is Samples, which hold their own prompts; leave out `t`.")
        samples = x
    else:
        outputs, prompts = as_items(x, "output"), as_items(t, "prompt")
        samples = Samples(
            _flat(x) if outputs is None else outputs, _flat(t) if prompts is None else prompts
        )
        if prompts is not None or (outputs is not None and t is not None):
            check_pairing(len(x), len(t), "t")
        samples = samples.without_empty()
    return samples.with_prompt_ids() if isinstance(kernel_t, Categorical) else samples


def _flat(side: Any) -> Any:
    """A tuple as a list, for tuples are of items; all else as it is."""
    return list(side) if isinstance(side, tuple) else side


def as_arrays(samples: Samples) -> Samples:
    """Items as they are, ids and lists as NumPy, rows of numbers in the library that they came in."""

    def side(data: Any) -> Any:
        if data is None or isinstance(data, tuple) or (is_array_api_obj(data) and data.ndim == 2):
            return data
        return to_numpy(data) if is_array_api_obj(data) else np.asarray(data)

    return replace(samples, outputs=side(samples.outputs), prompts=side(samples.prompts))


def _pixels(picture: Any) -> bytes:
    """A picture in memory as the bytes of a file without loss."""
    buffer = io.BytesIO()
    (picture if picture.mode == "RGB" else picture.convert("RGBA")).save(
        buffer, "PNG", compress_level=0
    )
    return buffer.getvalue()


def embed(
    samples: Samples,
    embedder_x: Embedder | Callable[[Sequence[Any]], Any] | None = None,
    embedder_t: Embedder | Callable[[Sequence[Any]], Any] | None = None,
    *,
    cache: Cache | str | Path | bool | None = None,
    num_workers: int | None = None,
    progress: Progress | None = None,
) -> Samples:
    """The same samples with vectors in place of texts, pictures and clips; arrays stay as they are.

    Parameters
    ----------
    samples : Samples
        As `load` returns them.
    embedder_x, embedder_t : Embedder or callable, optional
        For outputs and prompts; by default that of the modality in `DEFAULTS`. A callable gets a list of strings, pictures, or
        lists of pictures, and returns a row for each; its vectors are not cached.
    cache : Cache, path or bool, optional
        Where vectors are kept; by default in the user's cache folder, False keeps nothing.
    num_workers : int, optional
        Threads that read and decode; as many as there are cores. Never part of the answer.
    progress : callable, optional
        Is told a text and a fraction.

    Returns
    -------
    Samples
        With arrays, and how they were made in `embedders`.
    """
    kept = _cache(cache)
    sides: dict[str, Any] = {"x": samples.outputs, "t": samples.prompts}
    notes, warnings, made = list(samples.notes), list(samples.warnings), list(samples.embedders)
    for side, embedder in (("x", embedder_x), ("t", embedder_t)):
        items = sides[side]
        chosen = resolve_embedder(embedder, items, side)
        if chosen is None:
            continue
        found = embed_items(items, chosen, cache=kept, num_workers=num_workers, progress=progress)
        sides[side] = found.vectors
        notes.append(_told(side, chosen, found))
        warnings += found.warnings
        made.append({"side": side, **chosen.describe(), "dimension": int(found.vectors.shape[1])})
    return replace(
        samples,
        outputs=sides["x"],
        prompts=sides["t"],
        notes=tuple(notes),
        warnings=tuple(warnings),
        embedders=tuple(made),
        given=samples.given or as_arrays(samples),
    )


def _cache(cache: Any) -> Cache | None:
    if cache is False:
        return None
    if cache is None or cache is True:
        return Cache()
    if isinstance(cache, Cache):
        return cache
    if isinstance(cache, str | Path):
        return Cache(cache)
    raise ArgumentError(f"`cache` must be a folder, a Cache, or False; got {cache!r}.")


def resolve_embedder(embedder: Any, items: Any, side: str) -> Embedder | None:
    """The embedder given for some items, or the default of their modality; None for vectors, which need none."""
    what = _SIDES[side]
    if not isinstance(items, tuple):
        if embedder is not None:
            raise ArgumentError(
                f"`embedder_{side}` was given, but the {what} are {'missing' if items is None else 'vectors'}."
            )
        return None
    modalities = sorted({item.modality for item in items})
    if len(modalities) > 1:
        raise DataError(
            f"the {what} mix {' and '.join(_NOUNS[name] for name in modalities)}; score one kind at a time."
        )
    (modality,) = modalities
    if embedder is None:
        return DEFAULTS[modality]
    if not isinstance(embedder, Embedder):
        if not callable(embedder):
            raise ArgumentError(
                f"`embedder_{side}` must be an embedder such as dp.WordLlama(), or a function; got {embedder!r}."
            )
        embedder = Function(embedder, modality=modality)
    if embedder.modality == "image" and modality == "video":
        return FrameMean(embedder)
    if embedder.modality != modality:
        raise ArgumentError(
            f"{embedder.name} embeds {_NOUNS[embedder.modality]}, but the {what} are {_NOUNS[modality]}."
        )
    return embedder


def _told(side: str, embedder: Embedder, found: Embedded) -> str:
    total = found.computed + found.cached
    default = " (the default)" if embedder is DEFAULTS[embedder.modality] else ""
    what = (
        f"{_SIDES[side]}: {total:,} distinct {_NOUNS[embedder.modality]}, {embedder.name}{default}"
    )
    if found.computed == 0:
        return f"{what}: nothing to embed, all in the cache"
    return f"{what}: {found.computed:,} embedded, {found.cached:,} found in the cache"


def save_embedded(folder: str | Path, samples: Samples, embedded: Samples) -> None:
    """Write vectors and what they belong to, for `load` to read: outputs.npy, prompts.npy, pairs.jsonl, embedding.json.

    The last file marks the folder as whole; it is taken away first and written last.
    """
    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
        (target / EMBEDDING).unlink(missing_ok=True)
        (target / "prompts.npy").unlink(missing_ok=True)
        for name, side in (("outputs.npy", embedded.outputs), ("prompts.npy", embedded.prompts)):
            if side is not None:
                write_whole(
                    target / name, partial(np.save, arr=np.asarray(side), allow_pickle=False)
                )
        lines = (
            json.dumps(_pair(samples, place), ensure_ascii=False) + "\n"
            for place in range(len(samples))
        )
        write_whole(
            target / "pairs.jsonl", lambda file: file.writelines(line.encode() for line in lines)
        )
        description = {
            "schema": 1,
            "source": samples.source,
            "n": len(samples),
            "models": samples.models is not None,
            "skipped": samples.skipped,
            "skipped_models": list(samples.skipped_models),
            "warnings": list(embedded.warnings),
            "embedders": list(embedded.embedders),
        }
        text = json.dumps(description, indent=1, ensure_ascii=False)
        write_whole(target / EMBEDDING, lambda file: file.write(text.encode()))
    except OSError as error:
        raise DataError(f"cannot write to {target}: {error.strerror}.") from None


def _pair(samples: Samples, place: int) -> dict[str, Any]:
    pair: dict[str, Any] = {}
    for name, side in (("output", samples.outputs), ("prompt", samples.prompts)):
        if isinstance(side, tuple):
            item = side[place]
            pair[name] = item.text if isinstance(item, Text) else item.where
    if samples.models is not None:
        pair["model"] = samples.models[place]
    return pair
