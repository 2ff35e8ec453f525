"""Paired samples: outputs, their prompts, and the source of each."""

import html
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from divprism.core.validation import check_quality, require_one_type
from divprism.data.columns import plain_column
from divprism.data.frames import data_frame
from divprism.data.items import Item, Media, Text, clean_text, is_empty
from divprism.data.wording import NOUNS, agreeing, counted, hint_of_models
from divprism.errors import ArgumentError, DataError, Notice

__all__ = ["MAX_MODELS", "Samples", "Side", "files_of", "files_of_item"]

MAX_MODELS = 1_000
"""Models that a source may name: more of them are ids of another kind, and a table of no use."""

_HTML_ROWS = 5  # rows that a notebook shows
_HTML_WIDTH = 100  # characters of a text that a notebook shows

Side = tuple[Item, ...] | np.ndarray
"""Outputs or prompts: items to embed, embeddings (n, d), or n group ids."""


@dataclass(frozen=True, eq=False, repr=False)
class Samples:
    """Outputs and their prompts, row by row, as they were read or already embedded.

    Attributes
    ----------
    outputs : tuple of Item, or array (n, d)
        What the models generated.
    prompts : tuple of Item, array (n, d), array of n group ids, or None
        The prompt of each output.
    models : tuple of str, or None
        The model that generated each output; None if the source does not name it.
    source : str
        The file or folder that the samples were read from.
    notes : tuple of Notice
        How the source was interpreted: fields, layout, pairing.
    warnings : tuple of Notice
        What a reader of the scores should know: unused files, names that differ only by case.
    skipped : int
        Number of outputs left out because they, or their prompts, were empty.
    embedders : tuple of dict
        How the arrays were computed, if divprism computed them.
    skipped_models : tuple of str
        The model of each output left out, if the source names it.
    given : Samples, optional
        The texts, images, videos and sounds that the arrays were computed from, row by row.
    quality : array (n,), optional
        How good each output is: numbers of at least zero, on a scale of your own.
    rows : tuple of int, optional
        The row of each output in its source, counted from 0 with the empty ones; None where no row
        was left out or moved.
    records : tuple of (str, int), optional
        The table and the number of the record that each output was read from, counted from 0.
    """

    outputs: Side
    prompts: Side | None = None
    models: tuple[str, ...] | None = None
    source: str = "memory"
    notes: tuple[Notice, ...] = ()
    warnings: tuple[Notice, ...] = ()
    skipped: int = 0
    embedders: tuple[dict[str, Any], ...] = ()
    skipped_models: tuple[str, ...] = ()
    given: "Samples | None" = None
    quality: np.ndarray | None = None
    rows: tuple[int, ...] | None = None
    records: tuple[tuple[str, int], ...] | None = None

    def __post_init__(self) -> None:
        # Users build samples from strings, tuples and numbered models; everything below relies on
        # items or arrays, and on names.
        object.__setattr__(self, "outputs", _as_side(self.outputs, "output"))
        object.__setattr__(self, "prompts", _as_side(self.prompts, "prompt"))
        if self.models is not None:
            object.__setattr__(self, "models", tuple(map(str, plain_column(self.models))))
        if self.quality is not None:
            checked = check_quality(plain_column(self.quality), len(self))
            object.__setattr__(self, "quality", checked)

    def __len__(self) -> int:
        return len(self.outputs)

    def __repr__(self) -> str:
        return f"Samples({', '.join(_summary(self))})"

    def _repr_html_(self) -> str:
        """Return the summary and the first rows as HTML, for notebooks."""
        # Only the rows shown are converted: samples may have millions.
        rows = self.select(range(min(len(self), _HTML_ROWS)))
        columns = rows._columns()
        header = "".join(f"<th>{name}</th>" for name in columns)
        body = ""
        for values in zip(*columns.values(), strict=True):
            body += "<tr>" + "".join(map(_html_cell, values)) + "</tr>"
        rest = len(self) - len(rows)
        footer = ""
        if rest > 0:
            footer = f"<p>{counted(rest, 'more row', 'more rows')}</p>"
        if self.warnings:
            items = [f"<li>Warning: {html.escape(str(warning))}</li>" for warning in self.warnings]
            footer += f"<ul>{''.join(items)}</ul>"
        return (
            f"<div><p>{html.escape(repr(self))}</p>"
            f"<table><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table>{footer}</div>"
        )

    def to_frame(self) -> Any:
        """Return a DataFrame with the columns `model`, `prompt`, `output` and `quality`.

        A row is an output. Texts appear as strings, images, videos and sounds as the paths of their
        files, embeddings as arrays. Columns that the samples do not have are left out. The frame is
        a pandas one, or a polars one where pandas is not installed.

        Raises
        ------
        MissingExtraError
            If neither pandas nor polars is installed.
        """
        return data_frame(self._columns())

    def _columns(self) -> dict[str, Sequence[object]]:
        columns: dict[str, Sequence[object]] = {}
        if self.models is not None:
            columns["model"] = list(self.models)
        if self.prompts is not None:
            columns["prompt"] = _values(self.prompts)
        columns["output"] = _values(self.outputs)
        if self.quality is not None:
            columns["quality"] = self.quality.tolist()
        return columns

    def select(self, rows: Sequence[int]) -> "Samples":
        """Return the samples at the given rows, in that order."""
        # All columns are selected together, so that pairs stay intact.
        prompts, models, given, quality = self.prompts, self.models, self.given, self.quality
        if prompts is not None:
            prompts = _pick(prompts, rows)
        if models is not None:
            models = tuple(models[row] for row in rows)
        if given is not None:
            given = given.select(rows)
        if quality is not None:
            quality = quality[np.asarray(rows, dtype=int)]
        records = self.records
        if records is not None:
            records = tuple(records[row] for row in rows)
        return replace(
            self,
            outputs=_pick(self.outputs, rows),
            prompts=prompts,
            models=models,
            given=given,
            quality=quality,
            rows=self._source_rows(rows),
            records=records,
        )

    def _source_rows(self, rows: Sequence[int]) -> tuple[int, ...] | None:
        """Return the rows of the source at the given rows; None if these are all of them."""
        if self.rows is not None:
            return tuple(self.rows[row] for row in rows)
        if isinstance(rows, range) and rows == range(len(self)):
            return None
        return tuple(map(int, rows))

    def require_models(self, keyword: str = "model_field") -> None:
        """Refuse samples without models, or with more than `by_model` takes apart.

        `keyword` is what names the field of models: `load` takes `model_field`, `evaluate` takes
        `model`.
        """
        noun = "field"
        if keyword == "model":
            noun = "column or field"
        if self.models is None:
            way_out = hint_of_models(self.warnings) or f"Pass the {noun} that does as `{keyword}`."
            raise ArgumentError(f"{self.source} does not name the model of each output. {way_out}")
        count = len(set(self.models))
        if count > MAX_MODELS:
            raise DataError(
                f"{self.source} names {count:,} models for {len(self):,} outputs; at most "
                f"{MAX_MODELS:,} are read. Pass the {noun} that names the model as `{keyword}`."
            )

    def by_model(self) -> dict[str, "Samples"]:
        """Return the samples of each model, in order of first appearance.

        >>> from divprism.data.items import texts
        >>> both = Samples(texts(["a", "b", "c"]), models=("first", "second", "first"))
        >>> {name: len(part) for name, part in both.by_model().items()}
        {'first': 2, 'second': 1}
        """
        self.require_models()
        # A dictionary keeps the order of first appearance, which tables then show.
        rows_of: dict[str, list[int]] = {}
        for row, model in enumerate(self.models or ()):
            rows_of.setdefault(model, []).append(row)
        skipped = Counter(self.skipped_models)
        parts = {}
        for model, rows in rows_of.items():
            count = skipped[model]
            # What was skipped belongs to one model; without this, each would report the total.
            part = self.select(rows)
            parts[model] = replace(part, skipped=count, skipped_models=(model,) * count)
        return parts

    def without_empty(self) -> "Samples":
        """Return the samples without blank outputs and prompts, counted in `skipped`."""
        blank = self.empty_rows()
        if not blank:
            return self
        # An empty result would surface as a confusing error in a kernel later.
        if len(blank) == len(self):
            raise DataError("every output, or its prompt, is empty; there is nothing to score.")
        kept = self.select(sorted(set(range(len(self))) - set(blank)))
        models: tuple[str, ...] = ()
        if self.models is not None:
            models = tuple(self.models[row] for row in blank)
        were = agreeing(len(blank), "was", "were")
        text = (
            f"{len(blank):,} of {len(self):,} outputs {were} skipped because the output or its "
            "prompt is empty."
        )
        warning = Notice("outputs-skipped", text)
        return replace(
            kept,
            skipped=self.skipped + len(blank),
            skipped_models=(*self.skipped_models, *models),
            warnings=(*self.warnings, warning),
        )

    def empty_rows(self) -> list[int]:
        """Return the rows in which the output or its prompt is a blank text."""
        rows: set[int] = set()
        for side in (self.outputs, self.prompts):
            # Arrays have no blank rows: zeros are a valid embedding.
            if isinstance(side, tuple):
                rows.update(row for row, item in enumerate(side) if is_empty(item))
        return sorted(rows)

    def with_prompt_ids(self) -> "Samples":
        """Return the samples with a number in place of each prompt; equal texts share one."""
        if not isinstance(self.prompts, tuple):
            return self
        if not all(isinstance(prompt, Text) for prompt in self.prompts):
            return self
        # Numbered in order of appearance, so that equal samples always get equal ids.
        numbers: dict[bytes, int] = {}
        ids = [numbers.setdefault(prompt.digest(), len(numbers)) for prompt in self.prompts]
        return replace(self, prompts=np.array(ids), given=self.given or self)

    def head(self, limit: int) -> "Samples":
        """Return the first `limit` samples of each model."""
        seen: Counter[str] = Counter()
        models = self.models or ("",) * len(self)
        rows = []
        for row, model in enumerate(models):
            seen[model] += 1
            if seen[model] <= limit:
                rows.append(row)
        return self.select(rows)


def _summary(samples: Samples) -> list[str]:
    """Return the parts of the `repr`; no file is opened, no embedding is compared."""
    outputs = counted(len(samples), "output", "outputs")
    if samples.models is not None:
        outputs += f" of {counted(len(set(samples.models)), 'model', 'models')}"
    parts = [outputs]
    kind = _kind(samples.outputs)
    if samples.prompts is None:
        parts.append("no prompts")
    else:
        num_prompts = _num_distinct(samples.prompts)
        if num_prompts is None and samples.given is not None:
            # Embeddings are not compared, but the texts that they came from can be.
            num_prompts = _num_distinct(samples.given.prompts)
        if num_prompts is not None:
            parts.append(counted(num_prompts, "prompt", "prompts"))
        kind_of_prompts = _kind(samples.prompts)
        if kind_of_prompts != kind:
            kind += f" for {kind_of_prompts}"
    parts.append(kind)
    if samples.skipped:
        parts.append(f"{samples.skipped:,} skipped")
    # The default of samples that were not read from anywhere.
    if samples.source != "memory":
        # The last part of the path; the source itself where that is empty, as for ".".
        parts.append(f"from {Path(samples.source).name or samples.source!r}")
    return parts


def _kind(side: Side) -> str:
    if isinstance(side, tuple):
        modalities = {item.modality for item in side}
        return " and ".join(f"{NOUNS[name]}s" for name in sorted(modalities)) or "no items"
    # Arrays of other libraries, and lists, are kept as they were given.
    shape: tuple[int, ...] = getattr(side, "shape", ())
    if len(shape) == 2:
        return f"embeddings of width {shape[1]:,}"
    return "group ids"


def _num_distinct(side: Side | None) -> int | None:
    """Count distinct items or group ids; None for embeddings, which are too many to compare."""
    if isinstance(side, tuple):
        return len({_identity(item) for item in side})
    if isinstance(side, np.ndarray) and side.ndim == 1:
        # Ids may be strings or numbers; `unique` takes both.
        return len(np.unique(side))
    return None


def _identity(item: Item) -> object:
    """Return what makes items equal in the `repr`, whichever line they were read from."""
    if isinstance(item, Media):
        return item.source
    return item.label


def _values(side: Side) -> list[object]:
    if isinstance(side, tuple):
        return [item.label for item in side]
    return list(side)


def _html_cell(value: object) -> str:
    text = str(value)
    if isinstance(value, np.ndarray):
        text = f"embedding of width {value.size:,}"
    # A notebook full of whole outputs is slow to open.
    if len(text) > _HTML_WIDTH:
        text = text[:_HTML_WIDTH] + "..."
    # Texts come from untrusted files: without escaping, a tag in one would run in the notebook.
    return f"<td>{html.escape(text)}</td>"


def _as_side(values: Any, name: str) -> Any:
    """Return strings as items, and lists or tuples of numbers as an array; the rest as it is."""
    if not isinstance(values, np.ndarray):
        values = plain_column(values)
    if not isinstance(values, list | tuple) or len(values) == 0:
        return values
    if all(isinstance(value, str | Item) for value in values):
        items = []
        for row, value in enumerate(values):
            if isinstance(value, str):
                value = Text(clean_text(value), f"{name} {row}")
            items.append(value)
        return tuple(items)
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, RuntimeError):
        # Rows of different lengths are refused, with their names, where they are scored.
        return list(values)
    require_one_type(values, array, f"{name}s")
    return array


def _pick(side: Side, rows: Sequence[int]) -> Side:
    if isinstance(side, tuple):
        return tuple(side[row] for row in rows)
    if isinstance(rows, range) and rows.step == 1:
        # A slice is no copy, and that of a memory-mapped file stays on disk.
        return side[rows.start : rows.stop]
    # The type matters for an empty selection, which NumPy would make a float array.
    return side[np.asarray(rows, dtype=int)]


def files_of(samples: Samples) -> list[Path]:
    """The files of the images, videos and sounds in some samples, frame by frame."""
    paths: list[Path] = []
    for items in (samples.outputs, samples.prompts):
        if isinstance(items, tuple):
            for item in items:
                paths += files_of_item(item)
    return paths


def files_of_item(item: object) -> tuple[Path, ...]:
    """The files of an item: one, the frames of a video, or none."""
    if not isinstance(item, Media):
        return ()
    source = item.source
    if isinstance(source, Path):
        return (source,)
    if isinstance(source, tuple):
        return source
    return ()  # the bytes of an image or a sound
