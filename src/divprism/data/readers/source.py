"""The reader of one source: a file, a folder, shards or standard input, with its prompts."""

import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from divprism.data.files import open_file
from divprism.data.items import Item, is_empty
from divprism.data.media import media_kind
from divprism.data.readers.arrays import ARRAY_SUFFIXES, array_names, from_bytes, is_binary
from divprism.data.readers.checks import check_one_kind, check_surplus
from divprism.data.readers.datasets_folder import is_datasets_folder, read_datasets_folder
from divprism.data.readers.embedded import EMBEDDING, are_embedded, read_embedded
from divprism.data.readers.fields import Fields, Findings
from divprism.data.readers.folders import (
    MEDIA_SUFFIXES,
    find_table,
    folders_of_models,
    media_files,
    note_strays,
)
from divprism.data.readers.formats import is_array, starts_with_numbers, table_kind
from divprism.data.readers.guards import STDIN, Root, is_url, shown, standard_input
from divprism.data.readers.inspect_logs import one_run_each
from divprism.data.readers.joined_arrays import read_shards
from divprism.data.readers.joining import Prompts
from divprism.data.readers.layouts import read_media_folder
from divprism.data.readers.records import samples_from_records, side_from_records
from divprism.data.readers.shards import (
    array_shards,
    common_kind,
    matching,
    require_one_folder,
    require_same_parts,
)
from divprism.data.readers.tables import TABLE_SUFFIXES, Record, kind_of, read_table
from divprism.data.readers.values import as_file
from divprism.data.samples import Samples, Side
from divprism.errors import ArgumentError, DataError

__all__ = ["Source"]

_HUB = re.compile(r"[A-Za-z0-9][\w-]*/[A-Za-z0-9][\w-]*")


class Source:
    """The reader of one source.

    `outputs_per_prompt` is above 1 for an array (prompts, k, d), whose prompts may be one row
    each.
    """

    def __init__(
        self,
        source: str | Path,
        fields: Fields,
        findings: Findings,
        allow_outside: bool,
        limit: int | None,
    ) -> None:
        self.fields = fields
        self.findings = findings
        self.allow_outside = allow_outside
        self.limit = limit
        self.outputs_per_prompt = 1
        self.shards: Sequence[Path] = ()
        self.prompt_shards: Sequence[Path] = ()
        self.path = Path(source)
        self.name = shown(source)
        self.content: bytes | None = None
        if str(source) == "-":
            self.content = standard_input()
            self.name = STDIN

    def read(self, prompts: str | Path | None) -> Samples:
        """Return the outputs of the source, with their prompts from it or from elsewhere."""
        if self.content is not None:
            return self._piped(self.content, prompts)
        shards = matching(self.path, allow_outside=self.allow_outside)
        if shards is not None:
            return self._shards(shards, prompts)
        try:
            mode = self.path.stat().st_mode
        except (OSError, ValueError) as error:
            _refuse_download(self.name)
            reason = getattr(error, "strerror", None) or "it is not the name of a file"
            raise DataError(f"cannot read {self.name[:200]}: {reason}.") from None
        if stat.S_ISDIR(mode):
            return self._folder(self.path, prompts)
        # A pipe or a device is refused here: some readers open the file by its name.
        open_file(self.path, self.name).close()
        kind = kind_of(self.path)
        # Before tables, because a .csv file can be either.
        if is_array(self.path, kind, self.fields):
            return self._arrays([self.path], prompts)
        if kind in TABLE_SUFFIXES:
            root = Root(self.path.parent, self.allow_outside)
            return self._tables([self.path], root, prompts)
        raise self._unsupported(self.path, kind)

    def _unsupported(self, path: Path, kind: str) -> DataError | ArgumentError:
        if kind in MEDIA_SUFFIXES:
            return DataError(
                f"{shown(path)} is a single output, but diversity needs several; name its folder."
            )
        return ArgumentError(
            f"the suffix of {shown(path.name)} is not supported; `source` must be a folder "
            f"or one of {_known_suffixes()}."
        )

    def _shards(self, paths: Sequence[Path], prompts: str | Path | None) -> Samples:
        """Return the samples of files, or of embedded folders, that are parts of one data set."""
        self._note_shards(paths)
        self.shards = paths
        root = Root(paths[0].parent, self.allow_outside)
        if are_embedded(paths):
            samples = read_embedded(paths, root, self.name, keep_items=prompts is None)
            return self._join(samples, [], prompts)
        kind = common_kind(paths)
        if is_array(paths[0], kind, self.fields):
            return self._arrays(paths, prompts)
        if kind in TABLE_SUFFIXES:
            return self._tables(paths, root, prompts)
        raise self._unsupported(paths[0], kind)

    def _note_shards(self, paths: Sequence[Path]) -> None:
        if len(paths) > 1:
            ends = f"{shown(paths[0].name)} to {shown(paths[-1].name)}"
            self.findings.note(f"{self.name}: {len(paths):,} shards as one data set, {ends}")

    def _piped(self, content: bytes, prompts: str | Path | None) -> Samples:
        kind = table_kind(content)
        if kind is not None:
            root = Root(Path(), self.allow_outside)
            return self._records(read_table(content, kind, self.name), root, prompts)
        side = None
        if prompts is None and _has_prompts(content):
            side = from_bytes(content, "prompts")
        return self._paired_arrays(from_bytes(content, "outputs"), side, prompts)

    def _tables(self, paths: Sequence[Path], root: Root, prompts: str | Path | None) -> Samples:
        samples = self._records(_records_of(paths), root, prompts)
        require_one_folder(paths, samples.outputs)
        if prompts is None:
            require_one_folder(paths, samples.prompts)
        return samples

    def _records(
        self, records: Iterator[Record], root: Root, prompts: str | Path | None
    ) -> Samples:
        fields = self._fields_of_outputs(prompts is not None)
        samples, ids = samples_from_records(
            records, fields, root, self.findings, self.name, self.limit
        )
        return self._join(samples, ids, prompts)

    def _fields_of_outputs(self, joined: bool) -> Fields:
        if joined:
            # The prompt field is one of the other table.
            return replace(self.fields, prompt=None)
        return self.fields

    def _folder(self, folder: Path, prompts: str | Path | None) -> Samples:
        root = Root(folder, self.allow_outside)
        if (folder / EMBEDDING).is_file():
            # Prompts from elsewhere would not match the items that the vectors came from.
            samples = read_embedded([folder], root, self.name, keep_items=prompts is None)
            return self._join(samples, [], prompts)
        if is_datasets_folder(folder):
            samples = read_datasets_folder(folder, self.fields, root, self.findings)
            return self._join(samples, [], prompts)
        tables = find_table(folder)
        if not tables:
            models = folders_of_models(folder, root)
            if models:
                return self._folders_of_models(models, root, prompts)
            arrays = array_shards(folder, root)
            if arrays:
                note_strays(folder, "", self.findings)
                return self._array_folder(arrays, prompts)
            listed = None
            if prompts is not None:
                listed = self._list_of_prompts(prompts)
            return read_media_folder(folder, self.fields, root, self.findings, listed)
        return self._described_folder(tables, root, prompts)

    def _described_folder(
        self, tables: Sequence[Path], root: Root, prompts: str | Path | None
    ) -> Samples:
        """Return the samples of the tables in a folder: one, several of lm-eval, or shards."""
        for path in tables:
            root.require_inside(path, shown(path))
        if kind_of(tables[0]) == ".eval":
            tables = one_run_each(tables, self.findings)
        if kind_of(tables[0]) == ".parquet":
            self._note_shards(tables)
        name = self.name
        if len(tables) == 1:
            name = shown(tables[0])
        fields = self._fields_of_outputs(prompts is not None)
        samples, ids = samples_from_records(_records_of(tables), fields, root, self.findings, name)
        # Embeddings inside a table have no files to compare with.
        if isinstance(samples.outputs, tuple):
            check_surplus(samples, root, self.findings)
        return self._join(samples, ids, prompts)

    def _folders_of_models(
        self, models: dict[str, list[Path]], root: Root, prompts: str | Path | None
    ) -> Samples:
        """Return the samples of lm-eval in a folder for each model."""
        for paths in models.values():
            for path in paths:
                root.require_inside(path, shown(path))
        self.findings.note(f"{self.name}: a folder per model, {', '.join(map(shown, models))}")
        return self._records(_records_of_models(models), root, prompts)

    def _arrays(self, paths: Sequence[Path], prompts: str | Path | None) -> Samples:
        outputs = read_shards(paths, "outputs")
        # An archive may contain both sides; a separate file of prompts takes precedence.
        side = None
        if prompts is None and _has_prompts(paths[0]):
            side = read_shards(paths, "prompts")
        return self._paired_arrays(outputs, side, prompts)

    def _array_folder(self, files: dict[str, list[Path]], prompts: str | Path | None) -> Samples:
        """Return the samples of .npy shards in a folder, by their role."""
        for paths in files.values():
            self._note_shards(paths)
        self.shards = files["outputs"]
        side = None
        if prompts is None and "prompts" in files:
            require_same_parts(self.shards, files["prompts"], "prompts")
            side = read_shards(files["prompts"], "prompts")
        return self._paired_arrays(read_shards(files["outputs"], "outputs"), side, prompts)

    def _paired_arrays(
        self, outputs: np.ndarray, side: np.ndarray | None, prompts: str | Path | None
    ) -> Samples:
        samples = self._flat(Samples(outputs, side, None, self.name))
        # Before any limit, which could cut both to the same length.
        if samples.prompts is not None and len(samples.prompts) != len(samples):
            raise DataError(
                f"outputs and prompts must pair up row by row; got {len(samples):,} outputs and "
                f"{len(samples.prompts):,} prompts in {self.name}."
            )
        return self._join(samples, [], prompts)

    def _flat(self, samples: Samples) -> Samples:
        """Return an array (prompts, k, d) as k rows for each prompt; any other unchanged."""
        outputs = samples.outputs
        assert isinstance(outputs, np.ndarray)
        if outputs.ndim != 3:
            return samples
        count, each, width = outputs.shape
        self.outputs_per_prompt = each
        self.findings.note(
            f"{self.name}: {count:,} prompts with {each:,} outputs each, {width:,} wide"
        )
        # Without prompts, outputs at the same position still share one.
        side = samples.prompts
        if side is None:
            side = np.arange(count)
        assert isinstance(side, np.ndarray)
        if side.ndim > 2 or side.shape[0] != count:
            raise DataError(
                f"{self.name} contains outputs of {count:,} prompts, but its prompts have the "
                f"shape {side.shape}."
            )
        rows = outputs.reshape(count * each, width)
        return Samples(rows, np.repeat(side, each, axis=0), None, self.name)

    def _list_of_prompts(self, source: str | Path) -> tuple[Item, ...]:
        """Return the prompts for a folder of files; blank lines only separate them."""
        side, _ = self._prompts(source)
        if isinstance(side, np.ndarray):
            raise DataError(
                f"{self.name} is a folder of files; its `prompts` must be texts, images, "
                "videos or sounds, not an array."
            )
        return tuple(prompt for prompt in side if not is_empty(prompt))

    def _prompts(self, source: str | Path) -> tuple[Side, list[object]]:
        """Return separate prompts: an array, or items with the ids to join them by."""
        if str(source) == "-":
            return self._piped_prompts(standard_input())
        path = Path(source)
        # Functions of `os.path`: those of Path raise OSError for a name that no file can have.
        if not os.path.exists(path):
            _refuse_download(shown(source))
        paths = matching(path, allow_outside=self.allow_outside) or [path]
        if os.path.isdir(path):
            return self._folder_of_prompts(path)
        for file in paths:
            open_file(file, shown(file)).close()
        self.prompt_shards = paths
        kind = common_kind(paths)
        if is_array(paths[0], kind, self.fields):
            return read_shards(paths, "prompts"), []
        if kind not in TABLE_SUFFIXES:
            raise ArgumentError(
                f"the suffix of {shown(path.name)} is not supported; `prompts` must be a folder "
                f"or one of {_known_suffixes()}."
            )
        root = Root(paths[0].parent, self.allow_outside)
        side, ids = side_from_records(_records_of(paths), self.fields, root, shown(path))
        require_one_folder(paths, side)
        return side, ids

    def _folder_of_prompts(self, folder: Path) -> tuple[Side, list[object]]:
        root = Root(folder, self.allow_outside)
        arrays = array_shards(folder, root)
        if arrays:
            self.prompt_shards = arrays.get("prompts", arrays["outputs"])
            return read_shards(self.prompt_shards, "prompts"), []
        files = media_files(folder, root, self.fields.prompt_kind)
        if not files:
            raise DataError(
                f"{shown(folder)} contains no images, videos or sounds to use as prompts."
            )
        check_one_kind(files, folder)
        kind = media_kind(files[0].name) or "image"
        # File names serve as ids: 7.png is the prompt of the outputs with prompt_id 7.
        ids: list[object] = [file.stem for file in files]
        return tuple(as_file(file, kind) for file in files), ids

    def _piped_prompts(self, content: bytes) -> tuple[Side, list[object]]:
        """Return prompts from standard input: records, an array, or a prompt per line."""
        kind = table_kind(content)
        if kind is None:
            if is_binary(content) or starts_with_numbers(content):
                return from_bytes(content, "prompts"), []
            kind = ".txt"
        root = Root(Path(), self.allow_outside)
        return side_from_records(read_table(content, kind, STDIN), self.fields, root, STDIN)

    def _join(self, samples: Samples, ids: Sequence[object], prompts: str | Path | None) -> Samples:
        """Return the samples with separate prompts, if there are any."""
        if prompts is None:
            return samples
        side, keys = self._prompts(prompts)
        separate = Prompts(side, keys, shown(prompts), self.prompt_shards, self.shards)
        return separate.join(samples, ids, self.findings, self.outputs_per_prompt)


def _has_prompts(archive: Path | bytes) -> bool:
    """Whether an archive of arrays contains one of prompts; no other file does."""
    return not {"prompts", "t"}.isdisjoint(array_names(archive))


def _refuse_download(source: str) -> None:
    """Refuse URLs and names on the Hugging Face Hub, which are no files, by what they are."""
    if is_url(source):
        raise DataError(
            f"{shown(source[:200])} is a URL, and nothing is downloaded: download it, and name the "
            "file or folder."
        )
    # A data set of the Hub is called owner/name.
    if _HUB.fullmatch(source) and not os.path.exists(os.path.dirname(source)):
        raise DataError(
            f"there is no file or folder {source}, and nothing is downloaded: if it is a data set "
            "of the Hugging Face Hub, load it by datasets.load_dataset and pass it to dp.load or "
            "dp.evaluate, or save it by save_to_disk and name the folder."
        )


def _records_of(paths: Sequence[Path]) -> Iterator[Record]:
    """Yield the records of several tables, one after the other."""
    for path in paths:
        yield from read_table(path, kind_of(path), shown(path))


def _records_of_models(models: dict[str, list[Path]]) -> Iterator[Record]:
    """Yield the records of the tables of each model, with its name."""
    for model, paths in models.items():
        for record in _records_of(paths):
            yield Record({**record.fields, "model": model}, record.where, record.source)


def _known_suffixes() -> str:
    return ", ".join(sorted(ARRAY_SUFFIXES | TABLE_SUFFIXES))
