"""`load`: files and folders of any common layout as paired samples."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from divprism.data.items import Item, texts
from divprism.data.readers.content_checks import warn_about_content
from divprism.data.readers.fields import Fields, Findings
from divprism.data.readers.guards import shown
from divprism.data.readers.source import Source
from divprism.data.samples import Samples, Side
from divprism.data.tables_in_memory import is_table, read_table_in_memory, type_name
from divprism.data.wording import counted
from divprism.errors import ArgumentError, DataError

__all__ = ["load", "load_fields"]


def load(
    source: object,
    prompts: str | Path | None = None,
    *,
    output_field: str | None = None,
    prompt_field: str | None = None,
    model_field: str | None = None,
    quality_field: str | None = None,
    output_kind: str | None = None,
    prompt_kind: str | None = None,
    limit: int | None = None,
    strict: bool = False,
    allow_outside: bool = False,
) -> Samples:
    """Read outputs and their prompts from a file, folder or table, and check how they pair up.

    Reads tables (JSONL, CSV and TSV, also compressed by gzip; JSON, Parquet; samples of lm-eval),
    arrays (.npy, .npz, .safetensors, .csv of numbers, also of shape (prompts, k, d)), folders (a
    table beside its files, `datasets`, a folder per prompt, `{prompt}-{index}.ext`, frames), and
    `-` for standard input. A pattern (`shards/*.npy`) or a folder of .npy or Parquet shards is one
    data set, in the natural order of the names (2 before 10). `docs/how-to/inputs.md` shows each.
    Nothing in a file is executed.

    Parameters
    ----------
    source : str, Path or table
        File, folder, pattern, or `-`. Or a table in memory: a data frame of pandas, polars,
        pyarrow or another library that narwhals knows, a Hugging Face data set, a list of dicts.
    prompts : str or Path, optional
        Prompts in a separate file or folder: an array or list with a row per output, or a table
        to join by `prompt_id`.
    output_field, prompt_field, model_field : str, optional
        Fields of a table; recognised by their names if not given. Several outputs, or parts of a
        model's name, are separated by commas.
    quality_field : str, optional
        Field with a number of at least zero that says how good each output is, such as a rating
        or the score of a judge. A record with several outputs has a list of them, or one for all.
    output_kind, prompt_kind : str, optional
        "text", "image", "video" or "embedding", where the values leave doubt.
    limit : int, optional
        Keep the first `limit` pairs of each model, or of the source if it names no models. A note
        counts what is kept.
    strict : bool, optional
        Raise DataError for whatever is a warning otherwise, guesses about the source included:
        pooled models, empty outputs, unused files, refusals, prompts that are nearly equal.
    allow_outside : bool, optional
        Read files outside the folder of the table that names them.

    Returns
    -------
    Samples
        With `notes` on how the source was interpreted, and `warnings`.

    Raises
    ------
    ArgumentError
        If a setting is invalid, or if the format of the source is not supported.
    DataError
        If the source cannot be read or does not pair up; the message names the file and line.
    """
    fields = Fields(
        output_field, prompt_field, model_field, output_kind, prompt_kind, quality=quality_field
    )
    return load_fields(
        source, prompts, fields, limit=limit, strict=strict, allow_outside=allow_outside
    )


def load_fields(
    source: object,
    prompts: object,
    fields: Fields,
    *,
    limit: int | None = None,
    strict: bool = False,
    allow_outside: bool = False,
) -> Samples:
    """`load` with the fields in one object."""
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise ArgumentError(f"`limit` must be an integer of at least 1; got {limit!r}.")
    findings = Findings(strict)
    try:
        samples = _read(source, prompts, fields, findings, allow_outside, limit)
    except RecursionError:
        raise DataError(f"{_name_of(source)} is nested too deeply.") from None
    if fields.quality is not None and samples.quality is None:
        raise ArgumentError(
            f"`{fields.keyword('quality')}` names a field, but {_name_of(source)} has none: it is "
            "not a table."
        )
    # An array of strings is a list of texts, whichever file it came from.
    samples = _with_texts(samples)
    empty = samples.empty_rows()
    if strict and empty:
        raise DataError(
            f"{_where(samples, empty[0])} is empty, or its prompt is "
            "(an error because of `strict=True`)."
        )
    # After the join: dropping rows before it would shift the others.
    samples = samples.without_empty()
    if limit is not None:
        samples = _first_pairs(samples, limit, findings)
    # After the limit, so that warnings count the samples that are scored.
    warn_about_content(samples, findings, fields.declared_texts)
    warnings = (*samples.warnings, *findings.warnings)
    return replace(samples, notes=tuple(findings.notes), warnings=warnings)


def _read(
    source: object,
    prompts: object,
    fields: Fields,
    findings: Findings,
    allow_outside: bool,
    limit: int | None,
) -> Samples:
    """Return the samples of a path or of a table in memory."""
    if isinstance(source, str | Path):
        if prompts is not None and not isinstance(prompts, str | Path):
            raise ArgumentError(f"`prompts` must be a path; got a {type_name(prompts)}.")
        return Source(source, fields, findings, allow_outside, limit).read(prompts)
    if not is_table(source, is_named=True):
        raise ArgumentError(
            "`source` must be a path or a table in memory: a data frame, a Hugging Face data set, "
            f"or a list of dicts; got a {type_name(source)}."
        )
    if prompts is not None:
        raise ArgumentError(
            "`prompts` goes with files; name the column of prompts of a table as "
            f"`{fields.keyword('prompt')}`."
        )
    return read_table_in_memory(source, fields, findings, limit)


def _name_of(source: object) -> str:
    if isinstance(source, str | Path):
        return shown(source)
    return f"the {type_name(source)}"


def _first_pairs(samples: Samples, limit: int, findings: Findings) -> Samples:
    """Return the first pairs of each model, with a note on what that leaves."""
    kept = samples.head(limit)
    noun = "pair"
    if samples.prompts is None:
        noun = "output"
    first = f"limited to the first {counted(limit, noun, f'{noun}s')}"
    if samples.models is None:
        # Tables are read no further than that, so how many are left is not known.
        if len(kept) == limit:
            findings.note(f"{first} of {samples.source}")
    elif len(kept) < len(samples):
        num_models = len(set(samples.models))
        if num_models > 1:
            first += f" of each of {num_models:,} models"
        findings.note(f"{first}: {len(kept):,} of {len(samples):,}")
    return kept


def _with_texts(samples: Samples) -> Samples:
    """Return the samples with arrays of strings as texts."""
    outputs = _as_texts(samples.outputs, "output")
    prompts = samples.prompts
    if prompts is not None:
        prompts = _as_texts(prompts, "prompt")
    return replace(samples, outputs=outputs, prompts=prompts)


def _as_texts(side: Side, name: str) -> Side:
    if isinstance(side, np.ndarray) and side.ndim == 1 and side.dtype.kind == "U":
        return texts(side.tolist(), name)
    return side


def _where(samples: Samples, row: int) -> str:
    """Return the file and line of an output, or else its row."""
    output = samples.outputs[row]
    if isinstance(output, Item) and output.where:
        return output.where
    return f"output {row:,} of {samples.source}"
