"""`load`: whatever people have, as paired samples."""

import stat
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from divprism.errors import ArgumentError, DataError
from divprism.media import IMAGE_SUFFIXES, VIDEO_SUFFIXES
from divprism.readers.arrays import ARRAY_SUFFIXES, array_names, from_bytes, read_array
from divprism.readers.fields import Fields, Findings, as_file, samples_from_records, side_from_records
from divprism.readers.folders import (
    check_surplus,
    find_table,
    media_files,
    read_datasets_folder,
    read_media_folder,
    tell_prompts_by_case,
)
from divprism.readers.guards import Root, parse_json, shown, standard_input
from divprism.readers.tables import TABLE_SUFFIXES, Record, header, kind_of, read_table
from divprism.samples import Item, Samples, texts

__all__ = ["load"]

EMBEDDING = "embedding.json"
"""The file that marks a folder of vectors written by `divprism embed`."""


def load(
    source: str | Path,
    prompts: str | Path | None = None,
    *,
    output_field: str | None = None,
    prompt_field: str | None = None,
    model_field: str | None = None,
    output_kind: str | None = None,
    prompt_kind: str | None = None,
    limit: int | None = None,
    strict: bool = False,
    allow_outside: bool = False,
) -> Samples:
    """Read outputs and their prompts from a file or folder; the pairing is checked, nothing in it is run.

    Reads tables (JSONL, CSV, TSV, also packed by gzip; JSON, Parquet; samples of lm-eval), arrays (.npy, .npz, .safetensors,
    .csv of numbers; (prompts, k, d) too), folders (a table beside its files, `datasets`, a folder per prompt,
    `{prompt}-{index}.ext`, frames), and `-` for standard input. `docs/inputs.md` shows each. `notes` of the result tells how
    the source was understood, `warnings` what was odd about it.

    Parameters
    ----------
    source : str or Path
        File, folder, or `-`.
    prompts : str or Path, optional
        Prompts kept elsewhere: an array or list with a row per output; or a table to be joined by `prompt_id`.
    output_field, prompt_field, model_field : str, optional
        Fields of a table; found by their names if not given. Several outputs, or parts of a model's name: separated by commas.
    output_kind, prompt_kind : str, optional
        "text", "image", "video" or "embedding", where the values leave doubt.
    limit : int, optional
        Keep the first so many pairs of each model.
    strict : bool, optional
        Refuse what is otherwise skipped and told: empty outputs, surplus files, duplicates.
    allow_outside : bool, optional
        Read files outside the folder that names them.

    Raises
    ------
    DataError
        If the source cannot be read or does not pair up; the sentence names the file and line.
    """
    fields = Fields(output_field, prompt_field, model_field, output_kind, prompt_kind)
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise ArgumentError(f"`limit` must be a whole number of at least 1; got {limit!r}.")
    findings = Findings(strict)
    samples = _Source(source, fields, findings, allow_outside).read(prompts)
    samples = replace(samples, outputs=_worded(samples.outputs, "output"), prompts=_worded(samples.prompts, "prompt"))
    tell_prompts_by_case(samples, findings)
    if findings.skipped:
        findings.warnings.append(f"{findings.skipped:,} outputs were skipped: they, or their prompts, are empty.")
    samples = replace(
        samples,
        notes=tuple(findings.notes),
        warnings=(*samples.warnings, *findings.warnings),
        skipped=samples.skipped + findings.skipped,
    )
    return samples if limit is None else samples.head(limit)


class _Source:
    """One source on its way to samples."""

    def __init__(self, source: str | Path, fields: Fields, findings: Findings, allow_outside: bool) -> None:
        self.fields, self.findings, self.allow_outside = fields, findings, allow_outside
        self.content = standard_input() if str(source) == "-" else None
        self.path = Path(source)
        self.name = "standard input" if self.content is not None else shown(source)

    def read(self, prompts: str | Path | None) -> Samples:
        """Outputs from the source; prompts from it too, or from elsewhere."""
        if self.content is not None:
            return self._joined(self._stdin(self.content), prompts)
        try:
            mode = self.path.stat().st_mode
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is not the name of a file"
            raise DataError(f"cannot read {self.name[:200]}: {reason}.") from None
        if stat.S_ISDIR(mode):
            return self._folder(self.path, prompts)
        kind = kind_of(self.path)
        if kind in ARRAY_SUFFIXES and not (kind == ".csv" and self._is_table()):
            return self._arrays(self.path, prompts)
        if kind in TABLE_SUFFIXES:
            return self._joined(self._table(self.path, self.path, kind), prompts)
        if kind in IMAGE_SUFFIXES | VIDEO_SUFFIXES:
            raise DataError(f"{self.name} is a single output; diversity needs several: name the folder.")
        known = ", ".join(sorted(ARRAY_SUFFIXES | TABLE_SUFFIXES))
        raise ArgumentError(f"cannot tell what {shown(self.path.name)} is by its suffix; known are folders and {known}.")

    def _is_table(self) -> bool:
        """Whether a .csv has a header of fields rather than numbers."""
        cells = header(self.path, self.name)
        if any((self.fields.output, self.fields.prompt, self.fields.model)):
            return True
        lower = {cell.lower() for cell in cells}
        return bool(
            lower & {"prompt", "instruction", "caption", "text_in", "output", "response", "completion", "path", "file_name"}
        )

    def _stdin(self, content: bytes) -> tuple[Samples, list[Any]]:
        if content.lstrip()[:1] == b"{":
            return self._table(content, Path(), ".jsonl")
        return Samples(from_bytes(content, "outputs"), None, None, self.name), []

    def _table(self, source: Path | bytes, path: Path, kind: str) -> tuple[Samples, list[Any]]:
        root = Root(path.parent, self.allow_outside)
        records = read_table(source, kind, self.name)
        return samples_from_records(records, self.fields, root, self.findings, self.name)

    def _folder(self, folder: Path, prompts: str | Path | None) -> Samples:
        root = Root(folder, self.allow_outside)
        if (folder / EMBEDDING).is_file():
            return self._embedded(folder, prompts)
        if (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file():
            return self._joined((read_datasets_folder(folder, self.fields, root, self.findings), []), prompts)
        tables = find_table(folder)
        if not tables:
            side = None if prompts is None else self._prompts(prompts)[0]
            if isinstance(side, np.ndarray):
                raise DataError(f"{self.name} is a folder of files; its --prompts must be texts or pictures, not arrays.")
            return read_media_folder(folder, self.fields, root, self.findings, side)

        def records() -> Iterator[Record]:
            for path in tables:
                root.require_inside(path, shown(path))
                yield from read_table(path, kind_of(path), shown(path))

        name = shown(tables[0]) if len(tables) == 1 else self.name
        samples, ids = samples_from_records(records(), self.fields, root, self.findings, name)
        if isinstance(samples.outputs, tuple):
            check_surplus(samples, root, self.findings)
        return self._joined((samples, ids), prompts)

    def _arrays(self, path: Path, prompts: str | Path | None) -> Samples:
        outputs = read_array(path, "outputs")
        side: Any = None
        if prompts is None and {"prompts", "t"} & set(array_names(path)):
            side = read_array(path, "prompts")
        samples = Samples(outputs, side, None, self.name)
        if outputs.ndim == 3:
            samples = self._grid(samples)
        return self._joined((samples, []), prompts)

    def _grid(self, samples: Samples) -> Samples:
        """An array (prompts, k, d): k outputs in a row for each prompt."""
        outputs = samples.outputs
        assert isinstance(outputs, np.ndarray)
        count, each, width = outputs.shape
        self.findings.notes.append(f"{self.name}: {count:,} prompts with {each:,} outputs each, {width:,} wide")
        side = samples.prompts
        side = np.arange(count) if side is None else side
        if not isinstance(side, np.ndarray) or side.shape[0] != count:
            raise DataError(f"{self.name} holds outputs of {count:,} prompts, and {len(side):,} prompts.")
        return Samples(outputs.reshape(count * each, width), np.repeat(side, each, axis=0), None, self.name)

    def _embedded(self, folder: Path, prompts: str | Path | None) -> Samples:
        """What `divprism embed` wrote."""
        description = parse_json(_text(folder / EMBEDDING), shown(folder / EMBEDDING))
        if not isinstance(description, dict) or not isinstance(description.get("embedders"), list):
            raise DataError(f"{shown(folder / EMBEDDING)} is not what `divprism embed` writes.")
        models = None
        if description.get("models"):
            models = tuple(
                str(record.fields.get("model")) for record in read_table(folder / "pairs.jsonl", ".jsonl", "pairs.jsonl")
            )
        paired = (folder / "prompts.npy").is_file()
        samples = Samples(
            read_array(folder / "outputs.npy", "outputs"),
            read_array(folder / "prompts.npy", "prompts") if paired else None,
            models,
            self.name,
            warnings=tuple(str(text) for text in description.get("warnings", [])),
            skipped=int(description.get("skipped", 0)),
            embedders=tuple(entry for entry in description["embedders"] if isinstance(entry, dict)),
        )
        for what, side in (("prompts", samples.prompts), ("models", models)):
            if side is not None and len(side) != len(samples):
                raise DataError(f"{self.name} holds {len(samples):,} outputs and {len(side):,} {what}.")
        return self._joined((samples, []), prompts)

    def _prompts(self, source: str | Path) -> tuple[Any, list[Any]]:
        """Prompts of their own: an array, or items with the ids to join them by."""
        if str(source) == "-":
            return from_bytes(standard_input(), "prompts"), []
        path = Path(source)
        if path.is_dir():
            files = media_files(path, Root(path, self.allow_outside))
            if not files:
                raise DataError(f"{shown(path)} holds no pictures or videos to take as prompts.")
            kinds = {"video" if file.suffix.lower() in VIDEO_SUFFIXES else "image" for file in files}
            return tuple(as_file(file, min(kinds)) for file in files), [file.stem for file in files]
        kind = kind_of(path)
        if kind in ARRAY_SUFFIXES and not (kind == ".csv" and _Source(path, self.fields, Findings(), False)._is_table()):
            return read_array(path, "prompts"), []
        if kind not in TABLE_SUFFIXES:
            known = ", ".join(sorted(ARRAY_SUFFIXES | TABLE_SUFFIXES))
            raise ArgumentError(f"cannot tell what {shown(path.name)} is by its suffix; --prompts takes folders and {known}.")
        fields = replace(self.fields, output=None)
        return side_from_records(
            read_table(path, kind, shown(path)), fields, Root(path.parent, self.allow_outside), shown(path)
        )

    def _joined(self, found: tuple[Samples, list[Any]], prompts: str | Path | None) -> Samples:
        """With prompts from elsewhere: by id where both sides have one, else row by row."""
        samples, ids = found
        if prompts is None:
            return samples
        side, keys = self._prompts(prompts)
        if ids and keys and None not in ids and None not in keys:
            side = self._by_id(side, keys, ids, shown(prompts))
        elif len(side) != len(samples):
            raise DataError(
                f"`x` and `t` must pair up row by row; got {len(samples):,} outputs in {self.name} and {len(side):,} prompts "
                f"in {shown(prompts)}. Repeat a prompt once per output drawn under it."
            )
        return replace(samples, prompts=side)

    def _by_id(self, side: Sequence[Item], keys: list[Any], ids: list[Any], name: str) -> tuple[Item, ...]:
        places = {str(key): place for place, key in enumerate(keys)}
        if len(places) < len(keys):
            raise DataError(f"{name} has a prompt_id twice; outputs cannot be joined to it.")
        missing = [key for key in ids if str(key) not in places]
        if missing:
            raise DataError(f"{len(missing):,} outputs have a prompt_id that {name} lacks (first: {shown(missing[0])}).")
        unused = len(places) - len({str(key) for key in ids})
        if unused:
            self.findings.add(f"{unused:,} of {len(places):,} prompts in {name} have no output.")
        self.findings.notes.append(f"{self.name}: prompts joined from {name} by id")
        return tuple(side[places[str(key)]] for key in ids)


def _worded(side: Any, name: str) -> Any:
    """An array of strings as texts; anything else as it is."""
    return texts(side.tolist(), name) if isinstance(side, np.ndarray) and side.ndim == 1 and side.dtype.kind == "U" else side


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise DataError(f"cannot read {shown(path)}.") from None
