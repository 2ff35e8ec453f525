"""Records to pairs: which fields hold prompts, outputs and models, and what their values are."""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from divprism.data.media import IMAGE_SUFFIXES, VIDEO_SUFFIXES
from divprism.data.readers.guards import Root, shown
from divprism.data.readers.tables import Record
from divprism.data.readers.values import MISSING, is_blank, one_prompt, outputs_in
from divprism.data.samples import Item, Samples, clean_text, is_empty
from divprism.errors import ArgumentError, DataError

__all__ = [
    "FIELD_NAMES",
    "KINDS",
    "Fields",
    "Findings",
    "samples_from_records",
    "side_from_records",
]

KINDS = ("text", "image", "video", "embedding")
"""What a side can be told to be, where its values leave doubt."""

_FILES = (
    "path",
    "file_name",
    "file",
    "filename",
    "image",
    "video",
    "image_path",
    "video_path",
    "frames",
)
_TEXTS = (
    *("output", "response", "completion", "generation", "model_output", "text_out"),
    *("outputs", "responses", "completions", "generations", "model_outputs"),
    *("answer", "answers"),  # last: beside generations it is the right answer, not the model's
)
_VECTORS = ("embedding", "vector", "features")
_PROMPTS = ("prompt", "instruction", "question", "text_in", "caption", "query")
_MODELS = ("model", "generator", "model_name")
_IDS = ("prompt_id", "id")
FIELD_NAMES = frozenset((*_TEXTS, *_FILES, *_VECTORS, *_PROMPTS, *_MODELS, *_IDS, "text"))
"""Names that are looked for; in the first line of a CSV they tell a table from numbers."""


@dataclass(frozen=True)
class Fields:
    """Which fields to read; None: found by their names.

    Attributes
    ----------
    output : str, optional
        One field, or several separated by commas: each holds an output of the record's prompt.
    prompt : str, optional
        Field of the prompt.
    model : str, optional
        One field, or several separated by commas, whose values together name the model.
    output_kind, prompt_kind : str, optional
        "text", "image", "video" or "embedding".
    """

    output: str | None = None
    prompt: str | None = None
    model: str | None = None
    output_kind: str | None = None
    prompt_kind: str | None = None

    def __post_init__(self) -> None:
        for name in ("output_kind", "prompt_kind"):
            if getattr(self, name) not in (None, *KINDS):
                raise ArgumentError(
                    f"`{name}` must be one of {', '.join(KINDS)}; got {getattr(self, name)!r}."
                )


@dataclass
class Findings:
    """What was odd in a source: told as warnings, or refused when `strict`."""

    strict: bool = False
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        """A finding that a reader of the scores should know."""
        if self.strict:
            raise DataError(f"{text} (--strict)")
        self.warnings.append(text)


@dataclass(frozen=True)
class _Choice:
    """The fields that a source is read by, after a look at its first record."""

    outputs: tuple[str, ...]
    prompt: str | None
    models: tuple[str, ...]
    output_kind: str
    prompt_kind: str


def samples_from_records(
    records: Iterable[Record],
    fields: Fields,
    root: Root,
    findings: Findings,
    source: str,
    limit: int | None = None,
) -> tuple[Samples, list[Any]]:
    """Pairs from a table, empty ones as empty texts, and the prompt id of each (None where there is none).

    With a `limit` and no field of models, reading stops after so many pairs that are not empty.
    """
    head, stream = _opened(records, source)
    if fields.output is None and {"arguments", "resps"} <= head.fields.keys():
        findings.notes.append(
            f"{source}: samples of lm-eval, prompts from 'arguments', outputs from 'resps'"
        )
        stream = map(_lm_eval, _one_filter(stream, head.fields.get("filter"), source, findings))
        head = _lm_eval(head)
        fields = Fields("resps", "arguments", fields.model, "text", "text")
    outputs, prompt = _fields_of(head.fields, fields, source)
    seen, stream = _until_told(stream, [*outputs, *([] if prompt is None else [prompt])])
    choice = _Choice(
        outputs,
        prompt,
        _models_of(head.fields, fields, source),
        fields.output_kind or _kind(outputs[0], seen, root),
        fields.prompt_kind or ("text" if prompt is None else _kind(prompt, seen, root)),
    )
    findings.notes.append(_told(choice, source))
    rows = _Rows(choice, root)
    for record in itertools.chain(seen, stream):
        rows.add(record)
        if limit is not None and not choice.models and rows.full >= limit:
            break
    return rows.samples(source), rows.ids


def side_from_records(
    records: Iterable[Record], fields: Fields, root: Root, source: str
) -> tuple[tuple[Item, ...], list[Any]]:
    """Prompts from a table of their own, empty ones as empty texts, and their ids."""
    head, stream = _opened(records, source)
    name = _prompt_field(head.fields, fields, None, source)
    if name is None:
        raise DataError(
            f"{source} has no field of prompts among {_listed(head.fields)}; name it: --prompt-field."
        )
    seen, stream = _until_told(stream, (name,))
    kind = fields.prompt_kind or _kind(name, seen, root)
    items, ids = [], []
    for record in itertools.chain(seen, stream):
        items.append(one_prompt(_prompt_value(record, name), kind, record.where, root))
        ids.append(_identity(record.fields))
    return tuple(items), ids


def _opened(records: Iterable[Record], source: str) -> tuple[Record, Iterator[Record]]:
    """The first record, and all of them."""
    stream = iter(records)
    first = next(stream, None)
    if first is None:
        raise DataError(f"{source} holds no record.")
    return first, itertools.chain([first], stream)


def _until_told(
    stream: Iterator[Record], names: Iterable[str]
) -> tuple[list[Record], Iterator[Record]]:
    """The records up to where each of some fields has had a value, which tells what it holds; and the rest."""
    seen: list[Record] = []
    open_fields = set(names)
    for record in stream:
        seen.append(record)
        open_fields = {name for name in open_fields if is_blank(_dotted(record.fields, name))}
        if not open_fields:
            break
    return seen, stream


def _one_filter(
    records: Iterator[Record], kept: Any, source: str, findings: Findings
) -> Iterator[Record]:
    """lm-eval writes a document once per filter of its answers; the answers themselves are the same."""
    others = set()
    for record in records:
        name = record.fields.get("filter")
        if name == kept:
            yield record
        elif name not in others:
            others.add(name)
            findings.notes.append(
                f"{source}: lines of filter {shown(kept)} only, those of {shown(name)} repeat them"
            )


def _lm_eval(record: Record) -> Record:
    """A line of lm-eval's samples file: the first argument of the request, and the responses, as plain fields."""
    arguments = record.fields.get("arguments")
    value = arguments
    while (
        isinstance(value, list | dict) and value
    ):  # [[prompt, options]] or {"gen_args_0": {"arg_0": prompt, ...}}
        value = value[0] if isinstance(value, list) else next(iter(value.values()))
    if not isinstance(value, str):
        raise DataError(f"{record.where} has no prompt in 'arguments'.")
    responses = record.fields.get("resps")
    if not _all_texts(responses):
        raise DataError(
            f"{record.where} holds log-likelihoods, not generated texts; there is no output to score."
        )
    kept = {
        name: value for name, value in record.fields.items() if name not in ("arguments", "resps")
    }
    return Record({**kept, "arguments": value, "resps": responses}, record.where)


def _all_texts(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(_all_texts(entry) for entry in value)
    return isinstance(value, str)


def _fields_of(
    first: dict[str, Any], fields: Fields, source: str
) -> tuple[tuple[str, ...], str | None]:
    """The fields of outputs, and that of the prompt if there is one."""
    outputs = _named(first, fields.output, "--output-field", source)
    if not outputs:
        found = _first(first, (*_TEXTS, *_FILES, *_VECTORS))
        prompt_taken = fields.prompt or _first(first, _PROMPTS)
        if found is None and prompt_taken not in (None, "text"):
            found = _first(first, ("text",))
        if found is None:
            hint = (
                f" To score the prompts themselves: --output-field {shown(prompt_taken)}."
                if prompt_taken
                else ""
            )
            raise DataError(
                f"{source} has no field of outputs among {_listed(first)}; name it: --output-field.{hint}"
            )
        outputs = (found,)
    return outputs, _prompt_field(first, fields, outputs, source)


def _models_of(first: dict[str, Any], fields: Fields, source: str) -> tuple[str, ...]:
    named = _named(first, fields.model, "--model-field", source)
    found = None if named else _first(first, _MODELS)
    return named if found is None else (found,)


def _prompt_field(
    first: dict[str, Any], fields: Fields, outputs: tuple[str, ...] | None, source: str
) -> str | None:
    named = _named(first, fields.prompt, "--prompt-field", source)
    if len(named) > 1:
        raise ArgumentError(f"--prompt-field takes one field; got {fields.prompt!r}.")
    if named:
        return named[0]
    candidates = (
        _PROMPTS if outputs is not None and outputs[0] not in _FILES else (*_PROMPTS, "text")
    )
    return _first(first, tuple(name for name in candidates if name not in (outputs or ())))


def _named(first: dict[str, Any], names: str | None, flag: str, source: str) -> tuple[str, ...]:
    """Fields given by the user; several are separated by commas, and a dot leads into an object."""
    if names is None:
        return ()
    wanted = (names,) if names in first else tuple(name.strip() for name in names.split(","))
    for name in wanted:
        if MISSING is _dotted(first, name):
            raise DataError(f"{source} has no field {name!r} ({flag}) among {_listed(first)}.")
    return wanted


def _first(record: dict[str, Any], names: Iterable[str]) -> str | None:
    lower = {key.lower(): key for key in reversed(list(record))}
    return next((lower[name] for name in names if name in lower), None)


def _listed(record: dict[str, Any]) -> str:
    names = [shown(name) for name in list(record)[:12]]
    return ", ".join(names) + (", ..." if len(record) > 12 else "")


def _dotted(record: dict[str, Any], name: str) -> Any:
    if name in record:
        return record[name]
    value: Any = record
    for part in name.split("."):
        if not isinstance(value, dict) or part not in value:
            return MISSING
        value = value[part]
    return value


def _value(record: Record, name: str) -> Any:
    value = _dotted(record.fields, name)
    if value is MISSING:
        raise DataError(f"{record.where} has no field {name!r}.")
    return value


def _identity(record: dict[str, Any]) -> Any:
    name = _first(record, _IDS)
    return None if name is None or isinstance(record[name], list | dict) else record[name]


def _kind(name: str, seen: list[Record], root: Root) -> str:
    """What the values of a field are, told by the first one that is not empty and by the name of the field."""
    value = next(
        (found for record in seen if not is_blank(found := _dotted(record.fields, name))), None
    )
    sample: Any = value
    while isinstance(sample, list) and sample:
        sample = sample[0]
    if isinstance(sample, dict) and ("bytes" in sample or "path" in sample):
        return "image"
    if isinstance(sample, float | int) and not isinstance(sample, bool) and isinstance(value, list):
        return "embedding"
    if name.lower() == "frames" and isinstance(value, list):
        return "video"
    suffix = Path(sample).suffix.lower() if isinstance(sample, str) and len(sample) < 4096 else ""
    media = "image" if suffix in IMAGE_SUFFIXES else "video" if suffix in VIDEO_SUFFIXES else None
    if name.lower() in _FILES:
        return media or "image"
    if name.lower() in _VECTORS:
        return "embedding"
    return media if media is not None and _is_there(root.folder / sample) else "text"


def _is_there(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _told(choice: _Choice, source: str) -> str:
    outputs = " and ".join(repr(name) for name in choice.outputs)
    prompt = (
        "no prompts"
        if choice.prompt is None
        else f"prompts from {choice.prompt!r} ({choice.prompt_kind})"
    )
    model = (
        f", models from {' and '.join(repr(name) for name in choice.models)}"
        if choice.models
        else ""
    )
    return f"{source}: outputs from {outputs} ({choice.output_kind}), {prompt}{model}"


class _Rows:
    """Pairs as they are read from records."""

    def __init__(self, choice: _Choice, root: Root) -> None:
        self.choice, self.root = choice, root
        self.outputs: list[Any] = []
        self.prompts: list[Any] = []
        self.models: list[str] = []
        self.ids: list[Any] = []
        self.full = 0  # pairs that are not empty

    def add(self, record: Record) -> None:
        """The outputs of one record, each with its prompt."""
        choice, where = self.choice, record.where
        prompt: Any = None
        if choice.prompt is not None:
            prompt = one_prompt(
                _prompt_value(record, choice.prompt), choice.prompt_kind, where, self.root
            )
        model = " / ".join(shown(clean_text(str(_value(record, name)))) for name in choice.models)
        for name in choice.outputs:
            for output in outputs_in(
                _value(record, name),
                choice.output_kind,
                where,
                self.root,
                frames=name.lower() == "frames",
            ):
                self.outputs.append(output)
                self.prompts.append(prompt)
                self.models.append(model)
                self.ids.append(_identity(record.fields))
                self.full += not is_empty(output) and not is_empty(prompt)

    def samples(self, source: str) -> Samples:
        """What was read, empty outputs and prompts included."""
        choice = self.choice
        return Samples(
            _side(self.outputs, choice.output_kind, source),
            None if choice.prompt is None else _side(self.prompts, choice.prompt_kind, source),
            tuple(self.models) if choice.models else None,
            source,
        )


def _side(values: list[Any], kind: str, source: str) -> Any:
    if kind != "embedding":
        return tuple(values)
    widths = Counter(len(row) for row in values)
    if len(widths) > 1:
        raise DataError(
            f"the embeddings in {source} have different lengths: {', '.join(map(str, sorted(widths)[:5]))}."
        )
    try:
        return np.array(values, dtype=np.float64)
    except OverflowError:
        raise DataError(
            f"the embeddings in {source} hold a number too large for a float."
        ) from None


def _prompt_value(record: Record, name: str) -> Any:
    """The prompt of a record; Alpaca keeps what an instruction is about in a field of its own."""
    value = _value(record, name)
    about = record.fields.get("input")
    both = (
        name.lower() == "instruction"
        and isinstance(value, str)
        and isinstance(about, str)
        and about.strip()
    )
    return f"{value}\n\n{about}" if both else value
