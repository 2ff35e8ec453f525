"""The step from samples of items to samples of vectors, and a folder to keep the vectors in."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeAlias

import numpy as np

from divprism.core.arrays import Array
from divprism.data.files import write_together
from divprism.data.inputs import as_arrays
from divprism.data.items import WAY_OUT_OF_WAVEFORMS, Item, Text
from divprism.data.parts import Shard
from divprism.data.readers.embedded import EMBEDDING, is_written_by_embed
from divprism.data.samples import Samples
from divprism.data.wording import NOUNS, SIDES, counted, escaped, json_text, reason
from divprism.embedders.base import Content, Embedder
from divprism.embedders.cache import Cache
from divprism.embedders.doubts import doubts_about
from divprism.embedders.function import Function
from divprism.embedders.http import OpenAI
from divprism.embedders.image import EfficientNetLite0, FrameMean
from divprism.embedders.logmel import LogMel
from divprism.embedders.on_workers import embed_on_workers
from divprism.embedders.pipeline import Embedded, embed_items
from divprism.embedders.text import WordLlama
from divprism.engines import Engine, Progress, Threads, as_engine, as_progress
from divprism.errors import ArgumentError, DataError, Notice

__all__ = [
    "DEFAULTS",
    "EMBEDDED_FILES",
    "check_folder",
    "embed",
    "embed_into_cache",
    "resolve_cache",
    "resolve_embedder",
    "save_embedded",
    "try_embedders",
]

DEFAULTS: dict[str, Embedder] = {
    "text": WordLlama(),
    "image": EfficientNetLite0(),
    "video": FrameMean(),
    "audio": LogMel(),
}
"""The embedder of each modality if none is given: fixed, never downloaded."""

EMBEDDED_FILES = ("outputs.npy", "prompts.npy", "pairs.jsonl", EMBEDDING)
"""The files that `save_embedded` writes into its folder."""

EmbedderLike: TypeAlias = Embedder | Callable[[Sequence[Content]], Array]

_PLURALS = {modality: f"{noun}s" for modality, noun in NOUNS.items()}


def embed(
    samples: Samples,
    embedder_x: EmbedderLike | None = None,
    embedder_t: EmbedderLike | None = None,
    *,
    cache: Cache | str | Path | bool | None = None,
    num_workers: int | None = None,
    progress: Progress | bool | None = None,
    engine: object = None,
) -> Samples:
    """Return the same samples with vectors in place of texts, images, videos and sounds.

    Parameters
    ----------
    samples : Samples
        As `load` returns them. A side that is an array already stays as it is.
    embedder_x, embedder_t : Embedder or callable, optional
        For outputs and prompts; default: the entry of `DEFAULTS` for the modality. A callable
        receives a list of strings, PIL images, lists of PIL images or arrays of samples at
        16 kHz, and returns one row per item; its vectors are not cached.
    cache : Cache, path or bool, optional
        Where vectors are kept; default: the user's cache folder. False keeps nothing.
    num_workers : int, optional
        Number of threads that read and decode; default: the number of cores. Never part of the
        answer.
    progress : bool or callable, optional
        True shows a bar; a function is called with a text and the fraction that is done.
    engine : Engine or Client, optional
        A cluster whose workers run the models and share the cache; see `Resources`.

    Returns
    -------
    Samples
        With arrays, and in `embedders` a description of how they were computed.
    """
    if not isinstance(samples, Samples):
        raise ArgumentError(
            "`samples` must be Samples: use dp.load, or dp.Samples(outputs=[...]); "
            f"got {type(samples).__name__}."
        )
    vector_cache, cache_notes = resolve_cache(cache)
    report = as_progress(progress)
    sides = {"x": samples.outputs, "t": samples.prompts}
    notes = [*samples.notes, *cache_notes]
    warnings = list(samples.warnings)
    records = list(samples.embedders)
    for side, given in (("x", embedder_x), ("t", embedder_t)):
        items = sides[side]
        embedder = resolve_embedder(given, items, side)
        # Only items have an embedder: not vectors, group ids, or prompts that are absent.
        if embedder is None or not isinstance(items, tuple):
            continue
        if vector_cache is not None and _may_leave(embedder, as_engine(engine)):
            embed_on_workers(items, embedder, vector_cache, as_engine(engine), report)
        embedded = embed_items(
            items, embedder, cache=vector_cache, num_workers=num_workers, progress=report
        )
        sides[side] = embedded.vectors
        notes.append(Notice("embedded", _note(side, embedder, embedded), "note"))
        warnings += embedded.warnings
        for doubt in doubts_about(items, embedded.vectors, embedder, side):
            if doubt.severity == "note":
                notes.append(doubt)
            else:
                warnings.append(doubt)
        dimension = int(embedded.vectors.shape[1])
        records.append({"side": side, **embedder.describe(), "dimension": dimension})
    # `given` keeps the items, of which groups and reports show examples.
    outputs = sides["x"]
    assert outputs is not None
    return replace(
        samples,
        outputs=outputs,
        prompts=sides["t"],
        notes=tuple(notes),
        warnings=tuple(warnings),
        embedders=tuple(records),
        given=samples.given or as_arrays(samples),
    )


def _may_leave(embedder: Embedder, engine: Engine) -> bool:
    """Whether workers of the engine can embed: a key of an endpoint stays in this process."""
    is_cluster = not isinstance(engine, Threads)
    return is_cluster and embedder.revision is not None and not isinstance(embedder, OpenAI)


def try_embedders(
    samples: Samples,
    embedder_x: EmbedderLike | None,
    embedder_t: EmbedderLike | None,
    *,
    cache: Cache | str | Path | bool | None,
    engine: object,
) -> None:
    """Embed the first item of each side, so that what is missing is refused now and not later.

    For those who are about to pay for something else. An item whose vector is in the cache runs no
    model. Functions are not called, and neither is what runs on the workers of a cluster.
    """
    kept, _ = resolve_cache(cache)
    sides = (("x", embedder_x, samples.outputs), ("t", embedder_t, samples.prompts))
    for side, given, items in sides:
        embedder = resolve_embedder(given, items, side)
        if embedder is None or not isinstance(items, tuple) or embedder.revision is None:
            continue
        if kept is not None and _may_leave(embedder, as_engine(engine)):
            continue
        embed_items(items[:1], embedder, cache=kept)


def embed_into_cache(
    samples: Samples,
    embedder_x: EmbedderLike | None = None,
    embedder_t: EmbedderLike | None = None,
    *,
    cache: Cache | str | Path | bool | None = None,
    num_workers: int | None = None,
    progress: Progress | None = None,
) -> Samples:
    """Return what `embed` returns, for those who want the vectors in the cache and nowhere else.

    Jobs that embed different parts of one source share a cache, at the same time too; a later run
    on the whole source then calls no model.

    Raises
    ------
    ArgumentError
        If nothing would be kept: there is no cache, nothing to embed, or an embedder without a
        revision, whose vectors are never cached.
    DataError
        If the cache cannot be written.
    """
    kept, notes = resolve_cache(cache)
    if kept is None:
        why = "; ".join(map(str, notes)) or "vectors are not kept without a cache"
        raise ArgumentError(f"{why}; give a folder for them as `output`.")
    sides = (("x", embedder_x, samples.outputs), ("t", embedder_t, samples.prompts))
    chosen = [resolve_embedder(given, items, side) for side, given, items in sides]
    embedders = [embedder for embedder in chosen if embedder is not None]
    if not embedders:
        raise ArgumentError(f"there is nothing to embed in {samples.source}: it holds vectors.")
    for embedder in embedders:
        if embedder.revision is None:
            raise ArgumentError(
                f"vectors of {embedder.name} are not cached, because it has no revision; give a "
                "folder for them as `output`."
            )
    embedded = embed(samples, *chosen, cache=kept, num_workers=num_workers, progress=progress)
    if any(warning.code == "cache-not-written" for warning in embedded.warnings):
        raise DataError(
            f"cannot write vectors to the cache {escaped(kept.folder)[:200]}; pass another folder "
            "as `cache`, or set DIVPRISM_CACHE."
        )
    return embedded


def resolve_cache(cache: Cache | str | Path | bool | None) -> tuple[Cache | None, list[Notice]]:
    """Return the cache, or None and a note if nothing can be kept."""
    if cache is False:
        return None, []
    if cache is None or cache is True:
        try:
            return Cache(), []
        except DataError as error:
            return None, [Notice("no-cache", f"vectors are not kept; {error}", "note")]
    if isinstance(cache, Cache):
        return cache, []
    if isinstance(cache, str | Path):
        return Cache(cache), []
    raise ArgumentError(f"`cache` must be a folder, a Cache, or False; got {cache!r}.")


def resolve_embedder(embedder: EmbedderLike | None, items: object, side: str) -> Embedder | None:
    """Return the embedder for one side: the given one, or the default of the modality.

    None for vectors, which need no embedder. An image embedder is applied to the frames of
    videos, and a function is wrapped in `Function`.

    Raises
    ------
    ArgumentError
        If an embedder is given for vectors, or does not fit the modality of the items.
    DataError
        If the items are of several modalities.
    """
    noun = SIDES[side]
    if not isinstance(items, tuple):
        if embedder is None:
            return None
        problem = f"`embedder_{side}` was given, but the {noun} are {_state(items)}."
        if items is not None and getattr(embedder, "modality", "") == "audio":
            problem += f" To score waveforms, {WAY_OUT_OF_WAVEFORMS}."
        raise ArgumentError(problem)
    modality = _common_modality(items, noun)
    if embedder is None:
        return DEFAULTS[modality]
    if not isinstance(embedder, Embedder):
        if not callable(embedder):
            raise ArgumentError(
                f"`embedder_{side}` must be an embedder such as dp.WordLlama(), or a function; "
                f"got {embedder!r}."
            )
        embedder = Function(embedder, modality=modality)
    if embedder.modality == "image" and modality == "video":
        return FrameMean(embedder)
    if embedder.modality != modality:
        raise ArgumentError(
            f"`embedder_{side}` must embed {_PLURALS[modality]}, as the {noun} are; "
            f"{embedder.name} embeds {_PLURALS[embedder.modality]}."
        )
    return embedder


def _state(items: object) -> str:
    if items is None:
        return "missing"
    return "vectors"


def _common_modality(items: tuple[Item, ...], noun: str) -> str:
    modalities = sorted({item.modality for item in items})
    if len(modalities) > 1:
        kinds = " and ".join(_PLURALS[modality] for modality in modalities)
        raise DataError(f"the {noun} mix {kinds}; score one kind at a time.")
    return modalities[0]


def _note(side: str, embedder: Embedder, embedded: Embedded) -> str:
    """Return the sentence that reports how one side was embedded."""
    name = embedder.name
    # By identity: an equal embedder that the user passes is a choice, not the default.
    if embedder is DEFAULTS[embedder.modality]:
        name = f"{name} (the default)"
    total = embedded.computed + embedded.cached
    noun = f"distinct {NOUNS[embedder.modality]}"
    subject = f"{SIDES[side]}: {counted(total, noun, noun + 's')}, {name}"
    if embedded.computed == 0:
        return f"{subject}: nothing to embed, all in the cache"
    return f"{subject}: {embedded.computed:,} embedded, {embedded.cached:,} found in the cache"


def check_folder(folder: str | Path) -> None:
    """Refuse a folder for vectors in which files of somebody else would be replaced or removed.

    Raises
    ------
    ArgumentError
        If it has a file of `EMBEDDED_FILES`, but no embedding.json that `save_embedded` wrote.
    """
    target = Path(folder)
    present = [name for name in EMBEDDED_FILES if os.path.lexists(target / name)]
    if present and not is_written_by_embed(target):
        raise ArgumentError(
            f"{escaped(target)[:200]} has a file {present[0]}, which `divprism embed` did not "
            "write and would replace; name another folder."
        )


def save_embedded(
    folder: str | Path, samples: Samples, embedded: Samples, shard: Shard | None = None
) -> None:
    """Write vectors and the items they belong to into a folder that `load` reads.

    The files are outputs.npy, prompts.npy, pairs.jsonl and embedding.json, which names the shard
    if the samples are one part of a source. Only files of an earlier call are replaced.
    """
    target = Path(folder)
    check_folder(target)
    contents = {"outputs.npy": _vectors(embedded.outputs)}
    if embedded.prompts is not None:
        contents["prompts.npy"] = _vectors(embedded.prompts)
    lines = (_pair_line(samples, index) for index in range(len(samples)))
    contents["pairs.jsonl"] = lambda file: file.writelines(lines)
    entries = _describe(samples, embedded)
    if shard is not None:
        entries["shard"] = str(shard)
    description = json_text(entries, indent=1)
    # embedding.json marks the folder as complete, so it is the last of them: an interrupted run
    # leaves no folder that mixes old and new files.
    contents[EMBEDDING] = lambda file: file.write(description.encode())
    try:
        write_together(target, contents, absent="prompts.npy")
    except OSError as error:
        raise DataError(f"cannot write to {escaped(target)[:200]}: {reason(error)}.") from None


def _vectors(vectors: Array) -> Callable[[BinaryIO], object]:
    return partial(np.save, arr=np.asarray(vectors), allow_pickle=False)


def _describe(samples: Samples, embedded: Samples) -> dict[str, object]:
    return {
        "schema": 1,
        "source": samples.source,
        "n": len(samples),
        "models": samples.models is not None,
        "quality": samples.quality is not None,
        "skipped": samples.skipped,
        "skipped_models": list(samples.skipped_models),
        "warnings": [notice.to_dict() for notice in embedded.warnings],
        "embedders": list(embedded.embedders),
    }


def _pair_line(samples: Samples, index: int) -> bytes:
    """Return one line of pairs.jsonl: texts themselves, and names of files."""
    pair: dict[str, str | float] = {}
    for name, side in (("output", samples.outputs), ("prompt", samples.prompts)):
        if isinstance(side, tuple):
            item = side[index]
            pair[name] = item.text if isinstance(item, Text) else item.where
    if samples.models is not None:
        pair["model"] = samples.models[index]
    if samples.quality is not None:
        pair["quality"] = float(samples.quality[index])
    return f"{json_text(pair, indent=None)}\n".encode()
