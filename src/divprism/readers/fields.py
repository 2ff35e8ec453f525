"""Records to pairs: which fields hold prompts, outputs and models, and what their values are."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from divprism.errors import ArgumentError, DataError
from divprism.media import IMAGE_SUFFIXES, VIDEO_SUFFIXES
from divprism.readers.guards import Root, shown
from divprism.readers.tables import Record
from divprism.samples import Clip, Item, Picture, Samples, Text, clean_text

__all__ = ["Fields", "Findings", "KINDS", "as_file", "samples_from_records", "side_from_records"]

KINDS = ("text", "image", "video", "embedding")
"""What a side can be told to be, where its values leave doubt."""

_FILES = ("path", "file_name", "file", "filename", "image", "video", "image_path", "video_path", "frames")
_TEXTS = (
    *("output", "response", "completion", "generation", "answer", "model_output", "text_out"),
    *("outputs", "responses", "completions", "generations"),
)
_VECTORS = ("embedding", "vector", "features")
_PROMPTS = ("prompt", "instruction", "question", "text_in", "caption", "query")
_MODELS = ("model", "generator", "model_name")
_IDS = ("prompt_id", "id")


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
                raise ArgumentError(f"`{name}` must be one of {', '.join(KINDS)}; got {getattr(self, name)!r}.")


@dataclass
class Findings:
    """What was odd in a source: told as warnings, or refused when `strict`."""

    strict: bool = False
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    skipped: int = 0

    def add(self, text: str) -> None:
        """A finding that a reader of the scores should know."""
        if self.strict:
            raise DataError(f"{text} (--strict)")
        self.warnings.append(text)

    def empty(self, what: str, where: str) -> None:
        """An empty output or prompt: skipped and counted."""
        if self.strict:
            raise DataError(f"the {what} in {where} is empty (--strict)")
        self.skipped += 1


@dataclass(frozen=True)
class _Choice:
    """The fields that a source is read by, after a look at its first record."""

    outputs: tuple[str, ...]
    prompt: str | None
    models: tuple[str, ...]
    output_kind: str
    prompt_kind: str


def samples_from_records(
    records: Iterable[Record], fields: Fields, root: Root, findings: Findings, source: str
) -> tuple[Samples, list[Any]]:
    """Pairs from a table, and the prompt id of each (None where there is none)."""
    stream = iter(records)
    first = next(stream, None)
    if first is None:
        raise DataError(f"{source} holds no record.")
    if fields.output is None and {"arguments", "resps"} <= first.fields.keys():
        findings.notes.append(f"{source}: samples of lm-eval, prompts from 'arguments', outputs from 'resps'")
        first, stream = _lm_eval(first), map(_lm_eval, stream)
        fields = Fields("resps", "arguments", fields.model, "text", "text")
    choice = _choose(first.fields, fields, root, source)
    findings.notes.append(_told(choice, source))
    rows = _Rows(choice, root, findings)
    rows.add(first)
    for record in stream:
        rows.add(record)
    return rows.samples(source), rows.ids


def side_from_records(records: Iterable[Record], fields: Fields, root: Root, source: str) -> tuple[tuple[Item, ...], list[Any]]:
    """Prompts from a table of their own, and their ids."""
    stream = iter(records)
    first = next(stream, None)
    if first is None:
        raise DataError(f"{source} holds no record.")
    name = _prompt_field(first.fields, fields, None, source)
    if name is None:
        raise DataError(f"{source} has no field of prompts among {_listed(first.fields)}; name it: --prompt-field.")
    kind = fields.prompt_kind or _kind(name, first.fields, root)
    items, ids = [], []
    for record in (first, *stream):
        items.append(_one_prompt(_value(record, name), kind, record.where, root))
        ids.append(_identity(record.fields))
    return tuple(items), ids


def _lm_eval(record: Record) -> Record:
    """A line of lm-eval's samples file: the first argument of the request, and the responses, as plain fields."""
    arguments = record.fields.get("arguments")
    value = arguments
    while isinstance(value, list | dict) and value:  # [[prompt, options]] or {"gen_args_0": {"arg_0": prompt, ...}}
        value = value[0] if isinstance(value, list) else next(iter(value.values()))
    if not isinstance(value, str):
        raise DataError(f"{record.where} has no prompt in 'arguments'.")
    responses = record.fields.get("resps")
    if not _all_texts(responses):
        raise DataError(f"{record.where} holds log-likelihoods, not generated texts; there is no output to score.")
    kept = {name: value for name, value in record.fields.items() if name not in ("arguments", "resps")}
    return Record({**kept, "arguments": value, "resps": responses}, record.where)


def _all_texts(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(_all_texts(entry) for entry in value)
    return isinstance(value, str)


def _choose(first: dict[str, Any], fields: Fields, root: Root, source: str) -> _Choice:
    outputs = _named(first, fields.output, "--output-field", source)
    if not outputs:
        found = _first(first, (*_TEXTS, *_FILES, *_VECTORS))
        prompt_taken = fields.prompt or _first(first, _PROMPTS)
        if found is None and prompt_taken not in (None, "text"):
            found = _first(first, ("text",))
        if found is None:
            hint = f" To score the prompts themselves: --output-field {prompt_taken}." if prompt_taken else ""
            raise DataError(f"{source} has no field of outputs among {_listed(first)}; name it: --output-field.{hint}")
        outputs = (found,)
    prompt = _prompt_field(first, fields, outputs, source)
    models = _named(first, fields.model, "--model-field", source)
    if not models and (found := _first(first, _MODELS)) is not None:
        models = (found,)
    output_kind = fields.output_kind or _kind(outputs[0], first, root)
    prompt_kind = fields.prompt_kind or ("text" if prompt is None else _kind(prompt, first, root))
    return _Choice(outputs, prompt, models, output_kind, prompt_kind)


def _prompt_field(first: dict[str, Any], fields: Fields, outputs: tuple[str, ...] | None, source: str) -> str | None:
    named = _named(first, fields.prompt, "--prompt-field", source)
    if len(named) > 1:
        raise ArgumentError(f"--prompt-field takes one field; got {fields.prompt!r}.")
    if named:
        return named[0]
    candidates = _PROMPTS if outputs is not None and outputs[0] not in _FILES else (*_PROMPTS, "text")
    return _first(first, tuple(name for name in candidates if name not in (outputs or ())))


def _named(first: dict[str, Any], names: str | None, flag: str, source: str) -> tuple[str, ...]:
    """Fields given by the user; several are separated by commas, and a dot leads into an object."""
    if names is None:
        return ()
    wanted = (names,) if names in first else tuple(name.strip() for name in names.split(","))
    for name in wanted:
        if _MISSING is _dotted(first, name):
            raise DataError(f"{source} has no field {name!r} ({flag}) among {_listed(first)}.")
    return wanted


def _first(record: dict[str, Any], names: Iterable[str]) -> str | None:
    lower = {key.lower(): key for key in reversed(list(record))}
    return next((lower[name] for name in names if name in lower), None)


def _listed(record: dict[str, Any]) -> str:
    names = [shown(name) for name in list(record)[:12]]
    return ", ".join(names) + (", ..." if len(record) > 12 else "")


_MISSING = object()


def _dotted(record: dict[str, Any], name: str) -> Any:
    if name in record:
        return record[name]
    value: Any = record
    for part in name.split("."):
        if not isinstance(value, dict) or part not in value:
            return _MISSING
        value = value[part]
    return value


def _value(record: Record, name: str) -> Any:
    value = _dotted(record.fields, name)
    if value is _MISSING:
        raise DataError(f"{record.where} has no field {name!r}.")
    return value


def _identity(record: dict[str, Any]) -> Any:
    name = _first(record, _IDS)
    return None if name is None or isinstance(record[name], list | dict) else record[name]


def _kind(name: str, first: dict[str, Any], root: Root) -> str:
    """What the values of a field are, told by the first one and by the name of the field."""
    value = _dotted(first, name)
    if isinstance(value, dict) and ("bytes" in value or "path" in value):
        return "image"
    sample = value
    while isinstance(sample, list) and sample:
        sample = sample[0]
    if isinstance(sample, float | int) and not isinstance(sample, bool) and isinstance(value, list):
        return "embedding"
    if not isinstance(sample, str):
        return "text"
    suffix = Path(sample).suffix.lower() if len(sample) < 4096 else ""
    media = "image" if suffix in IMAGE_SUFFIXES else "video" if suffix in VIDEO_SUFFIXES else None
    if name.lower() == "frames" and isinstance(value, list):
        return "video"
    if name.lower() in _FILES:
        return media or "image"
    return media if media is not None and _is_there(root.folder / sample) else "text"


def _is_there(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _told(choice: _Choice, source: str) -> str:
    outputs = " and ".join(repr(name) for name in choice.outputs)
    prompt = "no prompts" if choice.prompt is None else f"prompts from {choice.prompt!r} ({choice.prompt_kind})"
    model = f", models from {' and '.join(repr(name) for name in choice.models)}" if choice.models else ""
    return f"{source}: outputs from {outputs} ({choice.output_kind}), {prompt}{model}"


class _Rows:
    """Pairs as they are read from records."""

    def __init__(self, choice: _Choice, root: Root, findings: Findings) -> None:
        self.choice, self.root, self.findings = choice, root, findings
        self.outputs: list[Any] = []
        self.prompts: list[Any] = []
        self.models: list[str] = []
        self.ids: list[Any] = []

    def add(self, record: Record) -> None:
        """The outputs of one record, each with its prompt."""
        choice, where = self.choice, record.where
        prompt: Any = None
        if choice.prompt is not None:
            prompt = _one_prompt(_value(record, choice.prompt), choice.prompt_kind, where, self.root)
        model = " / ".join(str(_value(record, name)) for name in choice.models)
        for name in choice.outputs:
            for output in _outputs(_value(record, name), choice.output_kind, where, self.root, frames=name.lower() == "frames"):
                if output is None or (choice.prompt is not None and prompt is None):
                    self.findings.empty("output" if output is None else "prompt", where)
                    continue
                self.outputs.append(output)
                self.prompts.append(prompt)
                self.models.append(model)
                self.ids.append(_identity(record.fields))

    def samples(self, source: str) -> Samples:
        """What was read, with its findings."""
        if not self.outputs:
            raise DataError(f"every output of {source} is empty; there is nothing to score.")
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
        raise DataError(f"the embeddings in {source} have different lengths: {', '.join(map(str, sorted(widths)[:5]))}.")
    return np.array(values, dtype=np.float64)


def _one_prompt(value: Any, kind: str, where: str, root: Root) -> Any:
    found = list(_outputs(_spoken(value), kind, where, root))
    if len(found) > 1:
        raise DataError(f"{where} has {len(found)} prompts in one field; a prompt is one text, picture or vector.")
    return found[0] if found else None


def _spoken(value: Any) -> Any:
    """Chat messages as one text; anything else as it is."""
    if isinstance(value, list) and value and all(isinstance(entry, dict) and "content" in entry for entry in value):
        return "\n".join(str(entry["content"]) for entry in value)
    return value


def _outputs(value: Any, kind: str, where: str, root: Root, *, frames: bool = False) -> Iterator[Any]:
    """The outputs that one field holds: a value, or a list of them; None stands for an empty one."""
    value = _spoken(value)
    if kind == "embedding":
        yield from _vectors(value, where)
    elif kind == "video" and frames and isinstance(value, list):
        if not value:
            yield None
        elif isinstance(value[0], list):  # several clips
            for clip in value:
                yield from _outputs(clip, kind, where, root, frames=True)
        else:
            yield Clip(tuple(root.find(_file_name(name, where), where) for name in value), where)
    elif isinstance(value, list):
        if not value:
            yield None
        for entry in value:
            yield from _outputs(entry, kind, where, root)
    elif kind == "text":
        yield _text(value, where)
    elif value is None or value == "":
        yield None
    elif isinstance(value, dict):
        yield _stored(value, kind, where, root)
    else:
        yield as_file(root.find(_file_name(value, where), where), kind, where)


def _vectors(value: Any, where: str) -> Iterator[list[float]]:
    if not isinstance(value, list) or not value:
        raise DataError(f"{where} has no list of numbers where an embedding is expected.")
    if isinstance(value[0], list):
        for entry in value:
            yield from _vectors(entry, where)
    elif all(isinstance(number, float | int) and not isinstance(number, bool) for number in value):
        yield value
    else:
        raise DataError(f"{where} has something other than numbers in an embedding.")


def _text(value: Any, where: str) -> Text | None:
    if isinstance(value, dict):
        value = next((value[name] for name in ("text", "content") if name in value), value)
    if value is None:
        return None
    if isinstance(value, dict | list | bytes):
        raise DataError(f"{where} has a {type(value).__name__} where a text is expected.")
    text = clean_text(str(value))
    return Text(text, where) if text.strip() else None


def _stored(value: dict[str, Any], kind: str, where: str, root: Root) -> Item:
    """A file inside a table, as `datasets` stores it: its bytes, or its name."""
    content = value.get("bytes")
    if isinstance(content, bytes) and kind == "image":
        return Picture(content, where)
    if isinstance(value.get("path"), str):
        return as_file(root.find(value["path"], where), kind, where)
    raise DataError(f"{where} holds neither the bytes nor the path of {'an image' if kind == 'image' else 'a video'}.")


def _file_name(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise DataError(f"{where} has a {type(value).__name__} where the name of a file is expected.")
    return value


def as_file(path: Path, kind: str, where: str = "") -> Item:
    """A picture or a clip, by its file."""
    label = f"{shown(path)} ({where})" if where else shown(path)
    return Clip(path, label) if kind == "video" else Picture(path, label)
