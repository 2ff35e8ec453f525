"""`load`: whatever people have, as paired samples."""

import itertools
import stat
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from divprism.data.media import IMAGE_SUFFIXES, VIDEO_SUFFIXES
from divprism.data.readers.arrays import (
    ARRAY_SUFFIXES,
    array_names,
    from_bytes,
    is_binary,
    numbers_in,
    read_array,
)
from divprism.data.readers.fields import (
    FIELD_NAMES,
    Fields,
    Findings,
    samples_from_records,
    side_from_records,
)
from divprism.data.readers.folders import (
    check_surplus,
    find_table,
    media_files,
    read_datasets_folder,
    read_media_folder,
    tell_prompts_by_case,
)
from divprism.data.readers.guards import Root, parse_json, read_lines, shown, standard_input
from divprism.data.readers.tables import TABLE_SUFFIXES, Record, header, kind_of, read_table
from divprism.data.readers.values import as_file
from divprism.data.samples import Item, Samples, Text, clean_text, is_empty, texts
from divprism.errors import ArgumentError, DataError

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
    samples = _Source(source, fields, findings, allow_outside, limit).read(prompts)
    samples = replace(
        samples,
        outputs=_worded(samples.outputs, "output"),
        prompts=_worded(samples.prompts, "prompt"),
    )
    empty = samples.empty_places()
    if strict and empty:
        raise DataError(f"{_where(samples, empty[0])} is empty, or its prompt is (--strict).")
    samples = samples.without_empty()
    tell_prompts_by_case(samples, findings)
    samples = replace(
        samples, notes=tuple(findings.notes), warnings=(*samples.warnings, *findings.warnings)
    )
    return samples if limit is None else samples.head(limit)


def _where(samples: Samples, place: int) -> str:
    """Where an output stands: file and line if they are known."""
    return getattr(samples.outputs[place], "where", "") or f"output {place:,} of {samples.source}"


class _Source:
    """One source on its way to samples."""

    def __init__(
        self,
        source: str | Path,
        fields: Fields,
        findings: Findings,
        allow_outside: bool,
        limit: int | None = None,
    ) -> None:
        self.fields, self.findings, self.allow_outside, self.limit = (
            fields,
            findings,
            allow_outside,
            limit,
        )
        self.each = 1  # outputs in a row for each prompt, of an array (prompts, k, d)
        self.content = standard_input() if str(source) == "-" else None
        self.path = Path(source)
        self.name = "standard input" if self.content is not None else shown(source)

    def read(self, prompts: str | Path | None) -> Samples:
        """Outputs from the source; prompts from it too, or from elsewhere."""
        if self.content is not None:
            return self._joined(self._stdin(self.content, prompts is not None), prompts)
        try:
            mode = self.path.stat().st_mode
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is not the name of a file"
            raise DataError(f"cannot read {self.name[:200]}: {reason}.") from None
        if stat.S_ISDIR(mode):
            return self._folder(self.path, prompts)
        kind = kind_of(self.path)
        if kind in ARRAY_SUFFIXES and not (kind == ".csv" and _is_table(self.path, self.fields)):
            return self._arrays(self.path, prompts)
        if kind in TABLE_SUFFIXES:
            return self._joined(
                self._table(self.path, self.path, kind, prompts is not None), prompts
            )
        if kind in IMAGE_SUFFIXES | VIDEO_SUFFIXES:
            raise DataError(
                f"{self.name} is a single output; diversity needs several: name the folder."
            )
        known = ", ".join(sorted(ARRAY_SUFFIXES | TABLE_SUFFIXES))
        raise ArgumentError(
            f"cannot tell what {shown(self.path.name)} is by its suffix; known are folders and {known}."
        )

    def _stdin(self, content: bytes, joined: bool) -> tuple[Samples, list[Any]]:
        kind = _table_kind(content)
        if kind is not None:
            return self._table(content, Path(), kind, joined)
        return self._grid(Samples(from_bytes(content, "outputs"), None, None, self.name)), []

    def _table(
        self, source: Path | bytes, path: Path, kind: str, joined: bool
    ) -> tuple[Samples, list[Any]]:
        root = Root(path.parent, self.allow_outside)
        fields = (
            replace(self.fields, prompt=None) if joined else self.fields
        )  # that field is one of the other table
        records = read_table(source, kind, self.name)
        return samples_from_records(records, fields, root, self.findings, self.name, self.limit)

    def _folder(self, folder: Path, prompts: str | Path | None) -> Samples:
        root = Root(folder, self.allow_outside)
        if (folder / EMBEDDING).is_file():
            return self._embedded(folder, prompts)
        if (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file():
            return self._joined(
                (read_datasets_folder(folder, self.fields, root, self.findings), []), prompts
            )
        tables = find_table(folder)
        if not tables:
            side = None if prompts is None else self._prompts(prompts)[0]
            if isinstance(side, np.ndarray):
                raise DataError(
                    f"{self.name} is a folder of files; its --prompts must be texts or pictures, not arrays."
                )
            listed = side and tuple(
                prompt for prompt in side if not is_empty(prompt)
            )  # blank lines of a list only set apart
            return read_media_folder(folder, self.fields, root, self.findings, listed)

        def records() -> Iterator[Record]:
            for path in tables:
                root.require_inside(path, shown(path))
                yield from read_table(path, kind_of(path), shown(path))

        name = shown(tables[0]) if len(tables) == 1 else self.name
        fields = self.fields if prompts is None else replace(self.fields, prompt=None)
        samples, ids = samples_from_records(records(), fields, root, self.findings, name)
        if isinstance(samples.outputs, tuple):
            check_surplus(samples, root, self.findings)
        return self._joined((samples, ids), prompts)

    def _arrays(self, path: Path, prompts: str | Path | None) -> Samples:
        outputs = read_array(path, "outputs")
        side: Any = None
        if prompts is None and {"prompts", "t"} & set(array_names(path)):
            side = read_array(path, "prompts")
        return self._joined((self._grid(Samples(outputs, side, None, self.name)), []), prompts)

    def _grid(self, samples: Samples) -> Samples:
        """An array (prompts, k, d) as k outputs in a row for each prompt; any other as it is."""
        outputs = samples.outputs
        assert isinstance(outputs, np.ndarray)
        if outputs.ndim != 3:
            return samples
        count, each, width = outputs.shape
        self.each = each
        self.findings.notes.append(
            f"{self.name}: {count:,} prompts with {each:,} outputs each, {width:,} wide"
        )
        side = np.arange(count) if samples.prompts is None else samples.prompts
        assert isinstance(side, np.ndarray)
        if side.ndim > 2 or side.shape[0] != count:
            raise DataError(
                f"{self.name} holds outputs of {count:,} prompts, but its prompts have the shape {side.shape}."
            )
        return Samples(
            outputs.reshape(count * each, width), np.repeat(side, each, axis=0), None, self.name
        )

    def _embedded(self, folder: Path, prompts: str | Path | None) -> Samples:
        """What `divprism embed` wrote."""
        root = Root(folder, self.allow_outside)
        mark = shown(folder / EMBEDDING)
        description = parse_json(_text(folder / EMBEDDING), mark)
        if not isinstance(description, dict) or not _as_written(description):
            raise DataError(f"{mark} is not what `divprism embed` writes.")
        records = None
        if description.get("models") or (folder / "pairs.jsonl").is_file():
            records = list(read_table(root.find("pairs.jsonl", mark), ".jsonl", "pairs.jsonl"))
        models = None
        if records is not None and description.get("models"):
            models = tuple(shown(clean_text(str(record.fields.get("model")))) for record in records)
        paired = (folder / "prompts.npy").is_file()
        samples = Samples(
            read_array(root.find("outputs.npy", mark), "outputs"),
            read_array(root.find("prompts.npy", mark), "prompts") if paired else None,
            models,
            self.name,
            warnings=tuple(shown(text) for text in description["warnings"]),
            skipped=description["skipped"],
            skipped_models=tuple(shown(text) for text in description["skipped_models"]),
            embedders=tuple(description["embedders"]),
        )
        for what, side in (("prompts", samples.prompts), ("models", models), ("pairs", records)):
            if side is not None and len(side) != len(samples):
                raise DataError(
                    f"{self.name} holds {len(samples):,} outputs and {len(side):,} {what}."
                )
        if records is not None and prompts is None:
            samples = replace(samples, given=_named(samples, records))
        return self._joined((samples, []), prompts)

    def _prompts(self, source: str | Path) -> tuple[Any, list[Any]]:
        """Prompts of their own: an array, or items with the ids to join them by."""
        if str(source) == "-":
            return self._piped_prompts(standard_input())
        path = Path(source)
        if path.is_dir():
            files = media_files(path, Root(path, self.allow_outside))
            if not files:
                raise DataError(f"{shown(path)} holds no pictures or videos to take as prompts.")
            kinds = {
                "video" if file.suffix.lower() in VIDEO_SUFFIXES else "image" for file in files
            }
            return tuple(as_file(file, min(kinds)) for file in files), [file.stem for file in files]
        kind = kind_of(path)
        if kind in ARRAY_SUFFIXES and not (kind == ".csv" and _is_table(path, self.fields)):
            return read_array(path, "prompts"), []
        if kind not in TABLE_SUFFIXES:
            known = ", ".join(sorted(ARRAY_SUFFIXES | TABLE_SUFFIXES))
            raise ArgumentError(
                f"cannot tell what {shown(path.name)} is by its suffix; --prompts takes folders and {known}."
            )
        root = Root(path.parent, self.allow_outside)
        return side_from_records(
            read_table(path, kind, shown(path)), self.fields, root, shown(path)
        )

    def _piped_prompts(self, content: bytes) -> tuple[Any, list[Any]]:
        """Records, an array, or a prompt per line."""
        kind = _table_kind(content) or (
            None if is_binary(content) or _holds_numbers(content) else ".txt"
        )
        if kind is None:
            return from_bytes(content, "prompts"), []
        name = "standard input"
        return side_from_records(
            read_table(content, kind, name), self.fields, Root(Path(), self.allow_outside), name
        )

    def _joined(self, found: tuple[Samples, list[Any]], prompts: str | Path | None) -> Samples:
        """With prompts from elsewhere: by id where both sides have one, else row by row."""
        samples, ids = found
        if prompts is None:
            return samples
        side, keys = self._prompts(prompts)
        name = shown(prompts)
        lacking = sum(key is None for key in keys)
        if ids and keys and None not in ids and 0 < lacking < len(keys):
            raise DataError(
                f"{lacking:,} of {len(keys):,} prompts in {name} have no prompt_id to join the outputs by."
            )
        if ids and keys and None not in ids and not lacking:
            return replace(samples, prompts=self._by_id(side, keys, ids, name))
        if self.each > 1 and len(side) * self.each == len(samples):
            places = np.repeat(np.arange(len(side)), self.each)
            side = (
                side[places]
                if isinstance(side, np.ndarray)
                else tuple(side[place] for place in places)
            )
        if len(side) != len(samples):
            raise DataError(
                f"`x` and `t` must pair up row by row; got {len(samples):,} outputs in {self.name} and {len(side):,} prompts "
                f"in {name}. Repeat a prompt once per output drawn under it."
            )
        _check_agreement(side, ids, self.name, name)
        if isinstance(samples.outputs, tuple):  # of two arrays nobody expects anything else
            self.findings.notes.append(f"{self.name}: prompts from {name}, row by row")
        return replace(samples, prompts=side)

    def _by_id(
        self, side: Sequence[Item], keys: list[Any], ids: list[Any], name: str
    ) -> tuple[Item, ...]:
        places = {str(key): place for place, key in enumerate(keys)}
        if len(places) < len(keys):
            raise DataError(f"{name} has a prompt_id twice; outputs cannot be joined to it.")
        missing = [key for key in ids if str(key) not in places]
        if missing:
            raise DataError(
                f"{len(missing):,} outputs have a prompt_id that {name} lacks (first: {shown(missing[0])})."
            )
        unused = len(places) - len({str(key) for key in ids})
        if unused:
            self.findings.add(f"{unused:,} of {len(places):,} prompts in {name} have no output.")
        self.findings.notes.append(f"{self.name}: prompts joined from {name} by id")
        return tuple(side[places[str(key)]] for key in ids)


def _check_agreement(side: Any, ids: list[Any], name: str, prompts: str) -> None:
    """Outputs with the same prompt_id must not get different prompts when the two are paired row by row."""
    given: dict[str, Any] = {}
    for place, key in enumerate(ids):
        prompt = side[place].tobytes() if isinstance(side, np.ndarray) else side[place].digest()
        if key is not None and given.setdefault(str(key), prompt) != prompt:
            raise DataError(
                f"paired row by row, outputs of {name} with the same prompt_id ({shown(key)}) would get different prompts; "
                f"give those in {prompts} a prompt_id too."
            )


def _as_written(description: dict[str, Any]) -> bool:
    """Whether embedding.json has what `divprism embed` writes, each of its kind."""
    made, skipped = description.get("embedders"), description.get("skipped")
    texts_in = [description.get("warnings"), description.get("skipped_models")]
    return (
        isinstance(made, list)
        and all(isinstance(entry, dict) and entry.get("side") in ("x", "t") for entry in made)
        and all(isinstance(entry.get("id"), str) and entry["id"].isprintable() for entry in made)
        and all(
            isinstance(entries, list) and all(isinstance(text, str) for text in entries)
            for entries in texts_in
        )
        and isinstance(skipped, int)
        and skipped >= 0
    )


def _is_table(path: Path, fields: Fields) -> bool:
    """Whether a .csv holds fields rather than numbers: by the flags, or by the names in its first line."""
    cells = header(path, shown(path))
    return any((fields.output, fields.prompt, fields.model)) or bool(
        {cell.lower() for cell in cells} & FIELD_NAMES
    )


def _table_kind(content: bytes) -> str | None:
    """`.jsonl` or `.json` for bytes that hold records, packed or not; None for anything else."""
    if is_binary(content):
        return None
    start = next(
        (line.lstrip()[:1] for _, line in read_lines(content, "standard input") if line.strip()), ""
    )
    return {"{": ".jsonl", "[": ".json"}.get(start)


def _holds_numbers(content: bytes) -> bool:
    """Whether the first or, below a header, the second line is a row of numbers."""
    lines = (line for _, line in read_lines(content, "standard input") if line.strip())
    return any(numbers_in(line) is not None for line in itertools.islice(lines, 2))


def _worded(side: Any, name: str) -> Any:
    """An array of strings as texts; anything else as it is."""
    return (
        texts(side.tolist(), name)
        if isinstance(side, np.ndarray) and side.ndim == 1 and side.dtype.kind == "U"
        else side
    )


def _named(samples: Samples, records: list[Any]) -> Samples:
    """What vectors were made from, as far as pairs.jsonl tells: texts, and the names of pictures and clips."""
    sides: dict[str, Any] = {"output": samples.outputs, "prompt": samples.prompts}
    for name, side in sides.items():
        if side is not None and all(isinstance(record.fields.get(name), str) for record in records):
            sides[name] = tuple(
                Text(clean_text(record.fields[name]), record.where) for record in records
            )
    return replace(samples, outputs=sides["output"], prompts=sides["prompt"])


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise DataError(f"cannot read {shown(path)}.") from None
