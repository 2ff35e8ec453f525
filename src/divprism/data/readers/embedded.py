"""Folders of vectors that `divprism embed` writes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from divprism.data.readers.arrays import read_array
from divprism.data.readers.guards import Root, parse_json, shown
from divprism.data.readers.records import model_name
from divprism.data.readers.tables import Record, read_table
from divprism.data.samples import Samples, Side, Text, clean_text
from divprism.errors import DataError, Notice

__all__ = ["EMBEDDING", "read_embedded"]

EMBEDDING = "embedding.json"
"""The file that marks a folder of vectors written by `divprism embed`."""

_OUTPUTS, _PROMPTS, _PAIRS = "outputs.npy", "prompts.npy", "pairs.jsonl"


def read_embedded(folder: Path, root: Root, name: str, *, keep_items: bool) -> Samples:
    """Return the vectors in a folder, with how they were computed.

    Parameters
    ----------
    folder : Path
        The folder.
    root : Root
        The folder that files must be in.
    name : str
        Its name in messages.
    keep_items : bool
        Whether to keep the texts and file names of pairs.jsonl in `given`.
    """
    mark = shown(folder / EMBEDDING)
    description = parse_json(_text(folder / EMBEDDING), mark)
    if not isinstance(description, dict) or not _is_complete(description):
        raise DataError(f"{mark} is not what `divprism embed` writes.")
    records = None
    if description.get("models") or (folder / _PAIRS).is_file():
        # Through `find`, which refuses links that lead out of the folder.
        records = list(read_table(root.find(_PAIRS, mark), ".jsonl", _PAIRS))
    models = None
    # Names of models are printed, so they are made printable like any other text.
    if records is not None and description.get("models"):
        models = tuple(model_name([entry.fields.get("model")], entry.where) for entry in records)
    prompts = None
    if (folder / _PROMPTS).is_file():
        prompts = read_array(root.find(_PROMPTS, mark), "prompts")
    samples = Samples(
        read_array(root.find(_OUTPUTS, mark), "outputs"),
        prompts,
        models,
        name,
        warnings=tuple(_notice(entry) for entry in description["warnings"]),
        skipped=description["skipped"],
        skipped_models=tuple(map(shown, description["skipped_models"])),
        embedders=tuple(description["embedders"]),
    )
    # Files of a folder can be replaced one by one; lengths show that they still match.
    for noun, rows in (("prompts", prompts), ("models", models), ("pairs", records)):
        if rows is not None and len(rows) != len(samples):
            raise DataError(f"{name} contains {len(samples):,} outputs and {len(rows):,} {noun}.")
    if records is not None and keep_items:
        samples = replace(samples, given=_items(samples, records))
    return samples


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
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
    skipped = description.get("skipped")
    return isinstance(skipped, int) and skipped >= 0


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
