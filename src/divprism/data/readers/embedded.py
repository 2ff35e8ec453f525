"""Folders of vectors that `divprism embed` writes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from divprism.data.files import read_file
from divprism.data.items import Text, clean_text
from divprism.data.parts import Shard, require_all
from divprism.data.readers.guards import MAX_JSON, Root, parse_json, shown
from divprism.data.readers.joined_arrays import read_shards
from divprism.data.readers.records import model_name
from divprism.data.readers.tables import Record, read_table
from divprism.data.readers.values import Place, qualities_in
from divprism.data.samples import Samples, Side
from divprism.errors import ArgumentError, DataError, Notice

__all__ = ["EMBEDDING", "are_embedded", "is_written_by_embed", "read_embedded"]

EMBEDDING = "embedding.json"
"""The file that marks a folder of vectors written by `divprism embed`."""

_OUTPUTS, _PROMPTS, _PAIRS = "outputs.npy", "prompts.npy", "pairs.jsonl"


def are_embedded(paths: Sequence[Path]) -> bool:
    """Whether paths are folders that `divprism embed` wrote; other folders are refused."""
    folders = [path for path in paths if path.is_dir()]
    if not folders:
        return False
    if len(folders) < len(paths):
        file = next(path for path in paths if path not in folders)
        raise DataError(
            f"the pattern matches folders and files ({shown(folders[0])}, {shown(file)}); "
            "shards of one data set are all of one kind."
        )
    for folder in folders:
        if not (folder / EMBEDDING).is_file():
            raise DataError(
                f"{shown(folder)} is a folder without {EMBEDDING}; several folders are read "
                "together only if `divprism embed` wrote them."
            )
    return True


def is_written_by_embed(folder: Path) -> bool:
    """Whether a folder has an embedding.json as `divprism embed` writes it."""
    mark = folder / EMBEDDING
    try:
        description = parse_json(_text(mark), shown(mark))
    except DataError:
        return False
    return isinstance(description, dict) and _is_complete(description)


def read_embedded(folders: Sequence[Path], root: Root, name: str, *, keep_items: bool) -> Samples:
    """Return the vectors in a folder, or in several one after the other.

    Parameters
    ----------
    folders : sequence of Path
        The folder, or the folders of all shards (`divprism embed --shard`).
    root : Root
        Whether files may be outside of their folder.
    name : str
        Its name in messages.
    keep_items : bool
        Whether to keep the texts and file names of pairs.jsonl in `given`.
    """
    parts = [_Part.read(folder, root.allow_outside) for folder in folders]
    first = parts[0]
    if len(parts) > 1:
        names = [shown(part.folder) for part in parts]
        require_all([part.shard for part in parts], names)
        _check_one_origin(parts)
    records = None
    if all(part.records is not None for part in parts):
        records = []
        for part in parts:
            records += part.records or []
    models = None
    # Names of models are printed, so they are made printable like any other text.
    if records is not None and first.description.get("models"):
        models = tuple(model_name([entry.fields.get("model")], entry.where) for entry in records)
    quality = None
    if records is not None and first.description.get("quality"):
        quality = np.array([_quality(entry) for entry in records])
    prompts = None
    if first.prompts is not None:
        prompts = read_shards([part.prompts for part in parts if part.prompts], "prompts")
    # Each shard of one source counts what was left out of all of it.
    counted = parts
    if first.shard is not None:
        counted = parts[:1]
    outputs = read_shards([part.outputs for part in parts], "outputs")
    # Files of a folder can be replaced one by one; lengths show that they still match.
    for noun, rows in (("prompts", prompts), ("models", models), ("pairs", records)):
        if rows is not None and len(rows) != len(outputs):
            raise DataError(f"{name} contains {len(outputs):,} outputs and {len(rows):,} {noun}.")
    samples = Samples(
        outputs,
        prompts,
        models,
        name,
        warnings=tuple(_warnings(parts)),
        skipped=sum(part.description["skipped"] for part in counted),
        skipped_models=tuple(shown(model) for part in counted for model in part.skipped_models),
        embedders=tuple(first.description["embedders"]),
        quality=quality,
    )
    if records is not None and keep_items:
        samples = replace(samples, given=_items(samples, records))
    return samples


@dataclass(frozen=True)
class _Part:
    """One folder: its description, its files, and its pairs."""

    folder: Path
    description: dict[str, Any]
    outputs: Path
    prompts: Path | None
    records: list[Record] | None

    @classmethod
    def read(cls, folder: Path, allow_outside: bool) -> "_Part":
        """Return a folder with its description and pairs; its vectors are read later."""
        root = Root(folder, allow_outside)
        mark = shown(folder / EMBEDDING)
        description = parse_json(_text(root.find(EMBEDDING, mark)), mark)
        if not isinstance(description, dict) or not _is_complete(description):
            raise DataError(f"{mark} is not what `divprism embed` writes.")
        records = None
        if description.get("models") or (folder / _PAIRS).is_file():
            # Through `find`, which refuses links that lead out of the folder.
            records = list(read_table(root.find(_PAIRS, mark), ".jsonl", _PAIRS))
        prompts = None
        if (folder / _PROMPTS).is_file():
            prompts = root.find(_PROMPTS, mark)
        return cls(folder, description, root.find(_OUTPUTS, mark), prompts, records)

    @property
    def shard(self) -> Shard | None:
        """The part of its source that the folder holds; None for all of it."""
        spelling = self.description.get("shard")
        if spelling is None:
            return None
        return Shard.parse(spelling)

    @property
    def skipped_models(self) -> list[str]:
        """The model of each output that was left out."""
        models: list[str] = self.description["skipped_models"]
        return models


def _warnings(parts: Sequence[_Part]) -> list[Notice]:
    """Return the warnings of the runs that embedded the parts, each once."""
    notices = []
    for part in parts:
        notices += [_notice(entry) for entry in part.description["warnings"]]
    if len(parts) == 1 and parts[0].shard is not None:
        shard = parts[0].shard
        text = f"{shown(parts[0].folder)} holds shard {shard} alone, not all of its source."
        notices.append(Notice("one-shard", text))
    origins = {str(part.description.get("source")): part for part in parts}
    if parts[0].shard is not None and len(origins) > 1:
        (one, first), (two, second) = list(origins.items())[:2]
        notices.append(
            Notice(
                "shards-of-several-sources",
                f"{shown(first.folder)} is a shard of {shown(one[:200])}, but "
                f"{shown(second.folder)} of {shown(two[:200])}; unless these are copies of one "
                "file, rows are missing.",
            )
        )
    return list(dict.fromkeys(notices))


def _check_one_origin(parts: Sequence[_Part]) -> None:
    """Refuse folders that differ in their embedders, or in what they contain."""
    first = parts[0]
    for part in parts[1:]:
        pairs = {"embedders": (part.description["embedders"], first.description["embedders"])}
        pairs["prompts"] = (part.prompts is None, first.prompts is None)
        for noun in ("models", "quality"):
            # Earlier versions wrote no entry for the quality.
            pairs[noun] = (bool(part.description.get(noun)), bool(first.description.get(noun)))
        for noun, (own, expected) in pairs.items():
            if own != expected:
                raise DataError(
                    f"{shown(part.folder)} and {shown(first.folder)} differ in their {noun}; "
                    "shards of one data set have the same."
                )


def _text(path: Path) -> str:
    try:
        return read_file(path, MAX_JSON, shown(path)).decode()
    except UnicodeDecodeError:
        raise DataError(f"cannot read {shown(path)}.") from None


def _is_complete(description: dict[str, Any]) -> bool:
    """Whether embedding.json has the entries that `divprism embed` writes, of the right types."""
    embedders = description.get("embedders")
    if not isinstance(embedders, list) or not all(map(_is_embedder, embedders)):
        return False
    warnings = description.get("warnings")
    if not isinstance(warnings, list) or not all(map(_is_notice, warnings)):
        return False
    models = description.get("skipped_models")
    if not isinstance(models, list) or not all(isinstance(name, str) for name in models):
        return False
    shard = description.get("shard")
    if shard is not None and not _is_shard(shard):
        return False
    skipped = description.get("skipped")
    return isinstance(skipped, int) and skipped >= 0


def _is_shard(spelling: object) -> bool:
    if not isinstance(spelling, str):
        return False
    try:
        Shard.parse(spelling)
    except ArgumentError:
        return False
    return True


def _notice(entry: dict[str, str]) -> Notice:
    """A warning of the run that embedded the samples; its texts may hold anything."""
    return Notice(shown(entry["code"]), shown(entry["text"]))


def _is_notice(entry: object) -> bool:
    if not isinstance(entry, dict):
        return False
    return all(isinstance(entry.get(key), str) for key in ("code", "text"))


def _is_embedder(entry: object) -> bool:
    if not isinstance(entry, dict) or entry.get("side") not in ("x", "t"):
        return False
    # The id is printed; escape codes in it could control the terminal.
    identifier = entry.get("id")
    return isinstance(identifier, str) and identifier.isprintable()


def _quality(record: Record) -> float:
    place = Place(record.where, Root(Path()), "quality", "quality_field")
    [value] = qualities_in(record.fields.get("quality"), 1, place)
    return value


def _items(samples: Samples, records: list[Record]) -> Samples:
    """Return the samples with texts and file names from pairs.jsonl in place of vectors."""
    outputs = _texts(records, "output")
    if outputs is None:
        outputs = samples.outputs
    prompts = samples.prompts
    if prompts is not None:
        prompts = _texts(records, "prompt")
        if prompts is None:
            prompts = samples.prompts
    return replace(samples, outputs=outputs, prompts=prompts)


def _texts(records: list[Record], name: str) -> Side | None:
    """Return a field of all records as texts; None unless each has one."""
    texts = []
    for record in records:
        value = record.fields.get(name)
        # Vectors that were given as arrays have no text to show.
        if not isinstance(value, str):
            return None
        texts.append(Text(clean_text(value), record.where))
    return tuple(texts)
