"""The fields of a table: which contain prompts, outputs, models and qualities, of what kind."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from divprism.data.media import media_kind
from divprism.data.readers.field_paths import last_found, value_at
from divprism.data.readers.guards import Root, shown
from divprism.data.readers.tables import Record
from divprism.data.readers.values import MISSING, is_blank, is_image, is_waveform
from divprism.data.sounds import is_sound
from divprism.data.wording import counted
from divprism.errors import ArgumentError, DataError, Notice

__all__ = [
    "FIELD_NAMES",
    "IDS",
    "KINDS",
    "ChosenFields",
    "Fields",
    "Findings",
    "JoinIds",
    "choose_fields",
    "is_answered",
    "known_output",
    "kind_of_field",
    "listed",
    "model_fields_of",
    "prompt_field_of",
    "until_filled",
    "value_of",
]

IDS = "id"
"""The kind of prompts that are integers in a table in memory: they are compared, not embedded."""
KINDS = ("text", "image", "video", "audio", "embedding")
"""What outputs and prompts can be declared to be, where their values leave doubt."""

# Each tuple is in order of preference: the first name that a record has is used.
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
    "audio",
    "audio_path",
)
_SOUNDS = ("audio", "audio_path")
_VIDEOS = ("video", "video_path")
_TEXTS = (
    *("output", "response", "completion", "generation", "model_output", "text_out"),
    *("outputs", "responses", "completions", "generations", "model_outputs"),
    # Last: beside generations, "answer" is the correct answer and not the model's.
    *("answer", "answers"),
)
_VECTORS = ("embedding", "vector", "features")
# Last: beside a prompt, messages are the whole conversation.
_PROMPTS = ("prompt", "instruction", "question", "text_in", "caption", "query", "messages")
_MODELS = ("model", "generator", "model_name")
_IDS = ("prompt_id", "id")
FIELD_NAMES = frozenset((*_TEXTS, *_FILES, *_VECTORS, *_PROMPTS, *_MODELS, *_IDS, "text"))
"""Known field names; in the first line of a CSV file, they distinguish a table from numbers."""

_LISTED = 12  # field names that a message lists
_SHOWN_NAME = 60  # characters of a name that a message shows


@dataclass(frozen=True)
class Fields:
    """The fields to read; None means that a field is recognised by its name.

    Attributes
    ----------
    output : str, optional
        A field, or several separated by commas: each contains an output of the record's prompt.
    prompt : str, optional
        The field of the prompt.
    model : str, optional
        A field, or several separated by commas whose values together name the model.
    output_kind, prompt_kind : str, optional
        "text", "image", "video", "audio" or "embedding".
    suffix : str
        What follows "output", "prompt" and "model" in the keywords of the caller, for messages:
        `load` takes `output_field`, `evaluate` takes `output`.
    noun : str
        What messages call a field: tables in memory have columns.
    quality : str, optional
        The field of a number that says how good an output is. Never recognised by its name: whether
        a score or a rating is a quality, and not a count or a loss, is for the user to say.
    """

    output: str | None = None
    prompt: str | None = None
    model: str | None = None
    output_kind: str | None = None
    prompt_kind: str | None = None
    suffix: str = "_field"
    noun: str = "field"
    quality: str | None = None

    def __post_init__(self) -> None:
        for name in ("output_kind", "prompt_kind"):
            value = getattr(self, name)
            if value not in (None, *KINDS):
                raise ArgumentError(f"`{name}` must be one of {', '.join(KINDS)}; got {value!r}.")

    def keyword(self, name: str) -> str:
        """Return the keyword that names the field of outputs, prompts, models or qualities.

        >>> Fields().keyword("output"), Fields(suffix="").keyword("output")
        ('output_field', 'output')
        """
        return f"{name}{self.suffix}"

    @property
    def declared_texts(self) -> tuple[str, ...]:
        """The sides, "output" and "prompt", that the user declares to be texts."""
        kinds = {"output": self.output_kind, "prompt": self.prompt_kind}
        return tuple(side for side, kind in kinds.items() if kind == "text")


@dataclass
class Findings:
    """Notes and warnings about a source; with `strict`, a warning is an error.

    Attributes
    ----------
    strict : bool
        Whether to raise DataError instead of collecting warnings.
    warnings : list of Notice
        What a reader of the scores should know.
    notes : list of Notice
        How the source was interpreted.
    """

    strict: bool = False
    warnings: list[Notice] = field(default_factory=list)
    notes: list[Notice] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Add a note on how the source was interpreted."""
        self.notes.append(Notice("source", text, "note"))

    def warn(self, code: str, text: str) -> None:
        """Add a warning, or raise it as DataError if `strict`."""
        # Raised at once: with `strict`, the first problem ends the reading.
        if self.strict:
            raise DataError(f"{text.rstrip('.')} (an error because of `strict=True`).")
        self.warnings.append(Notice(code, text))


@dataclass(frozen=True)
class ChosenFields:
    """The fields of a source, chosen by its first records."""

    outputs: tuple[str, ...]
    prompt: str | None
    models: tuple[str, ...]
    output_kind: str
    prompt_kind: str
    quality: str | None = None

    def note(self, source: str) -> str:
        """Return how the source was interpreted, in one line."""
        parts = [f"outputs from {_quoted(self.outputs)} ({self.output_kind})"]
        if self.prompt is None:
            parts.append("no prompts")
        else:
            parts.append(f"prompts from {self.prompt!r} ({self.prompt_kind})")
        if self.models:
            parts.append(f"models from {_quoted(self.models)}")
        if self.quality is not None:
            parts.append(f"quality from {self.quality!r}")
        return f"{source}: {', '.join(parts)}"


def _quoted(names: Iterable[str]) -> str:
    return " and ".join(map(repr, names))


def choose_fields(
    head: Record,
    stream: Iterator[Record],
    fields: Fields,
    root: Root,
    source: str,
    *,
    is_typed: bool = False,
) -> tuple[ChosenFields, list[Record]]:
    """Choose fields by the names in the first record, and kinds by the first values.

    Returns the choice and the records that were consumed for it. If values are typed, those of
    tables in memory, integers in place of prompts are ids, and other numbers are refused; CSV and
    JSON leave open whether 7 is a number or a text.
    """
    outputs = _output_fields(head.fields, fields, source)
    prompt = prompt_field_of(head.fields, fields, outputs, source)
    models = model_fields_of(head.fields, fields, source)
    quality = _single(head.fields, fields.quality, "quality", fields, source)
    names = list(outputs)
    if prompt is not None:
        names.append(prompt)
    seen = until_filled(stream, names)
    output_kind = fields.output_kind or kind_of_field(outputs[0], seen, root)
    # Without prompts the kind is never used, but the choice has to be complete.
    prompt_kind = fields.prompt_kind or "text"
    if prompt is not None and fields.prompt_kind is None:
        prompt_kind = kind_of_field(prompt, seen, root)
        if is_typed and type(_first_value(prompt, seen)) is int:
            prompt_kind = IDS
    if is_typed:
        _check_types(head, seen, outputs, prompt, fields, source)
    return ChosenFields(outputs, prompt, models, output_kind, prompt_kind, quality), seen


def _check_types(
    head: Record,
    seen: list[Record],
    outputs: Sequence[str],
    prompt: str | None,
    fields: Fields,
    source: str,
) -> None:
    """Refuse columns of numbers, dates and the like where texts or files are expected."""
    expected = dict.fromkeys(outputs, "outputs must be texts, images, videos, sounds or vectors")
    if prompt is not None and prompt not in expected:
        expected[prompt] = "prompts must be texts, images, videos, sounds, vectors or integer ids"
    for name, requirement in expected.items():
        value = _first_value(name, seen)
        is_id = name == prompt and name not in outputs and type(value) is int
        if is_id or value is None or isinstance(value, str | bytes | list | dict):
            continue
        if is_image(value) or isinstance(value, Path):
            continue
        raise DataError(
            f"the {fields.noun} {name!r} of {source} holds values of type "
            f"{type(value).__name__}, but {requirement}; it has {listed(head.fields)}."
        )


def until_filled(stream: Iterator[Record], names: Sequence[str]) -> list[Record]:
    """Consume records until each of some fields has had a value, and return them."""
    seen: list[Record] = []
    # The first record may be empty; its blank values do not show what a field contains.
    missing = set(names)
    for record in stream:
        seen.append(record)
        missing = {name for name in missing if is_blank(value_at(record.fields, name))}
        if not missing:
            break
    return seen


def _output_fields(first: dict[str, Any], fields: Fields, source: str) -> tuple[str, ...]:
    """Return the fields of the outputs, by name or as the user asks for."""
    outputs = _named(first, fields.output, "output", fields, source)
    if outputs:
        return outputs
    known = known_output(first)
    prompt = fields.prompt or _first_known(first, _PROMPTS)
    if known is None and prompt not in (None, "text"):
        # "text" alone is ambiguous; beside a prompt it is the output.
        known = _first_known(first, ("text",))
    if known is not None:
        return (known,)
    hint = ""
    if prompt:
        hint = f" To score the prompts themselves, pass `{fields.keyword('output')}={prompt!r}`."
    raise DataError(
        f"{source} has no {fields.noun} that is known to hold outputs (it has {listed(first)}); "
        f"name one with `{fields.keyword('output')}`.{hint}"
    )


def known_output(record: dict[str, Any]) -> str | None:
    """Return the field of a record that is known to hold outputs; None without one."""
    return _first_known(record, (*_TEXTS, *_FILES, *_VECTORS))


def known_prompt(record: dict[str, Any]) -> str | None:
    """Return the field of a record that is known to hold prompts; None without one."""
    return _first_known(record, _PROMPTS)


def is_answered(messages: object) -> bool:
    """Whether a conversation ends with a message of the assistant."""
    if not isinstance(messages, list) or not messages:
        return False
    return isinstance(messages[-1], dict) and messages[-1].get("role") == "assistant"


def model_fields_of(first: dict[str, Any], fields: Fields, source: str) -> tuple[str, ...]:
    """Return the fields that together name the model; () without one."""
    named = _named(first, fields.model, "model", fields, source)
    known = _first_known(first, _MODELS)
    if named or known is None:
        return named
    return (known,)


def prompt_field_of(
    first: dict[str, Any], fields: Fields, outputs: tuple[str, ...], source: str
) -> str | None:
    """Return the field of the prompts, or None; `outputs` is () in a table of prompts."""
    named = _single(first, fields.prompt, "prompt", fields, source)
    if named is not None:
        return named
    candidates: tuple[str, ...] = _PROMPTS
    if not outputs or outputs[0] in _FILES:
        # `datasets` calls the caption of an image "text".
        candidates = (*_PROMPTS, "text")
    known = _first_known(first, [name for name in candidates if name not in outputs])
    # Messages that end with an answer contain the output.
    if known is not None and known.lower() == "messages" and is_answered(first[known]):
        return None
    return known


def _single(
    first: dict[str, Any], name: str | None, argument: str, fields: Fields, source: str
) -> str | None:
    """Return the one field that the user names; None without one."""
    named = _named(first, name, argument, fields, source)
    if len(named) > 1:
        raise ArgumentError(
            f"`{fields.keyword(argument)}` must be one {fields.noun}; got {name!r}."
        )
    return next(iter(named), None)


def _named(
    first: dict[str, Any], names: str | None, argument: str, fields: Fields, source: str
) -> tuple[str, ...]:
    """Return the fields that the user names, separated by commas.

    A dot leads into an object or a list: `choices.0.message.content`.
    """
    if names is None:
        return ()
    keyword = fields.keyword(argument)
    if not isinstance(names, str):
        raise ArgumentError(
            f"`{keyword}` must be the name of a {fields.noun}; got a {type(names).__name__}."
        )
    wanted = [names]
    # A name that contains a comma or a dot and exists as it stands is that field.
    if names not in first:
        wanted = [name.strip() for name in names.split(",")]
    for name in wanted:
        if value_at(first, name) is MISSING:
            instead = _what_there_is(first, name)
            raise DataError(f"{source} has no {fields.noun} {name!r} (`{keyword}`); {instead}.")
    return tuple(wanted)


def _what_there_is(record: dict[str, Any], path: str) -> str:
    """Return the fields beside a missing one: those of the record, or of the object in it."""
    found, value = last_found(record, path)
    if found and isinstance(value, dict):
        return f"{shown(found[:_SHOWN_NAME])} has {listed(value)}"
    if found and isinstance(value, list):
        return f"{shown(found[:_SHOWN_NAME])} has {counted(len(value), 'entry', 'entries')}"
    return f"it has {listed(record)}"


def _first_known(record: dict[str, Any], names: Iterable[str]) -> str | None:
    """Return the field that has the first of some names, in any case."""
    # Reversed, so that of two names that differ by case the first one in the record wins.
    lower = {key.lower(): key for key in reversed(list(record))}
    for name in names:
        if name in lower:
            return lower[name]
    return None


def listed(record: dict[str, Any]) -> str:
    """Return the field names of a record for a message, shortened if there are many."""
    names = [shown(name[:_SHOWN_NAME]) for name in itertools.islice(record, _LISTED)]
    if len(record) > _LISTED:
        names.append("...")
    return ", ".join(names)


def value_of(record: Record, name: str, noun: str = "field") -> Any:
    """Return the value of a field; raise DataError if the record does not have it."""
    value = value_at(record.fields, name)
    if value is MISSING:
        raise DataError(
            f"{record.where} has no {noun} {name!r}, unlike the first record; add it, or remove "
            "the record."
        )
    return value


class JoinIds:
    """The ids that join the records of a table with their prompts, as the records are read."""

    def __init__(self) -> None:
        # A record that lacks `prompt_id` may have an `id` that numbers something else, so all ids
        # come from one field, which is known when all records are read.
        self._by_field: dict[str, list[object]] = {name: [] for name in _IDS}
        self._present: set[str] = set()

    def add(self, record: dict[str, Any], count: int = 1) -> None:
        """Add a record that `count` outputs or prompts come from."""
        for name, ids in self._by_field.items():
            field_name = _first_known(record, (name,))
            value = None
            if field_name is not None:
                self._present.add(name)
                value = record[field_name]
            # Some tables store a list under "id"; joining by it would match nothing. A blank cell
            # is no id either: two of them would match each other.
            if isinstance(value, list | dict) or is_blank(value):
                value = None
            ids.extend([value] * count)

    @property
    def values(self) -> list[object]:
        """An id for each output or prompt; None for one without."""
        names = [name for name in _IDS if name in self._present]
        return self._by_field[(*names, _IDS[0])[0]]


def kind_of_field(name: str, seen: list[Record], root: Root) -> str:
    """Return the kind of a field, from its first value that is not blank and from its name."""
    value = _first_value(name, seen)
    sample = value
    while isinstance(sample, list) and sample:
        sample = sample[0]
    if isinstance(sample, dict) and is_waveform(sample):
        return "audio"
    # `datasets` stores images and sounds as {"bytes": ..., "path": ...}.
    if isinstance(sample, dict) and ("bytes" in sample or "path" in sample):
        return _kind_of_file(sample, name)
    if is_image(sample):
        return "image"
    # A number alone is a label or a rating; only lists of numbers are embeddings.
    is_number = isinstance(sample, float | int) and not isinstance(sample, bool)
    if is_number and isinstance(value, list):
        return "embedding"
    # A list of images is several outputs in any other field, but one video in this one.
    if name.lower() == "frames" and isinstance(value, list):
        return "video"
    media = media_kind(sample)
    if isinstance(sample, Path):  # in memory only: a path is a file, whatever its column is called
        return media_kind(str(sample)) or _kind_by_name(name)
    if name.lower() in _FILES:
        return media or _kind_by_name(name)
    if name.lower() in _VECTORS:
        return "embedding"
    # In any other field, "cat.png" is a file only if there is one: texts may end so, too.
    if media is not None and _exists(root.folder / str(sample)):
        return media
    return "text"


def _kind_of_file(file: dict[str, Any], name: str) -> str:
    """Return the kind of a file inside a table, by its content, its path, or its field."""
    content = file.get("bytes")
    if isinstance(content, bytes) and is_sound(content):
        return "audio"
    if content is None:
        return media_kind(file.get("path")) or _kind_by_name(name)
    return "image"


def _kind_by_name(name: str) -> str:
    """Return the kind of a field of files that have no suffix."""
    if name.lower() in _SOUNDS:
        return "audio"
    if name.lower() in _VIDEOS:
        return "video"
    return "image"


def _first_value(name: str, seen: list[Record]) -> object:
    for record in seen:
        value = value_at(record.fields, name)
        if not is_blank(value):
            return value
    return None


def _exists(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that no file system takes
        return False
