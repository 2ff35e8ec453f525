"""Records to pairs: outputs with their prompts, models and prompt ids."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import numpy as np

from divprism.data.items import Item, clean_text, is_empty
from divprism.data.readers.decoder import MAX_NAME
from divprism.data.readers.dialects import dialect_of
from divprism.data.readers.fields import (
    IDS,
    ChosenFields,
    Fields,
    Findings,
    JoinIds,
    choose_fields,
    kind_of_field,
    listed,
    prompt_field_of,
    until_filled,
    value_of,
)
from divprism.data.readers.guards import Root, shown
from divprism.data.readers.hidden_models import UnusedFields
from divprism.data.readers.late_fields import LateFields
from divprism.data.readers.openai_logs import is_request, request_record
from divprism.data.readers.tables import Record
from divprism.data.readers.values import (
    Place,
    Value,
    is_blank,
    outputs_in,
    prompt_in,
    qualities_in,
)
from divprism.data.samples import Samples, Side
from divprism.errors import DataError

__all__ = ["model_name", "samples_from_records", "side_from_records"]


def samples_from_records(
    records: Iterable[Record],
    fields: Fields,
    root: Root,
    findings: Findings,
    source: str,
    limit: int | None = None,
    *,
    is_typed: bool = False,
) -> tuple[Samples, list[object]]:
    """Return the pairs of a table, and the prompt id of each (None without one).

    Empty outputs and prompts are included as empty texts, so that rows stay aligned.

    Parameters
    ----------
    records : iterable of Record
        The records.
    fields : Fields
        The fields to read.
    root : Root
        The folder that file names are relative to.
    findings : Findings
        Receives notes and warnings.
    source : str
        The name of the table in messages.
    limit : int, optional
        Stop after this number of pairs that are not empty. Ignored if a field names the model:
        the limit is then one for each model, and a model may appear on the last line.
    is_typed : bool, optional
        Whether a number is a number, as in tables in memory, and not possibly a text.
    """
    head, stream = _peek(records, source)
    # An explicit output field means that the user wants something else from these files.
    dialect = None
    if fields.output is None:
        dialect = dialect_of(head)
    if dialect is not None:
        findings.note(f"{source}: {dialect.note}")
        head, stream = _peek(dialect.plain(stream, source, findings, fields), source)
        fields = dialect.fields(fields, head)
    choice, seen = choose_fields(head, stream, fields, root, source, is_typed=is_typed)
    findings.note(choice.note(source))
    rows = _Rows(choice, root, fields)
    unused = UnusedFields.beside(choice, fields)
    late = LateFields(head, choice, fields, source)
    for record in itertools.chain(seen, stream):
        late.check(record)
        rows.add(record)
        unused.add(record.fields, rows.last_prompt, len(rows.outputs))
        # Stops early, so that the first pairs of a huge table are read at once.
        if limit is not None and not choice.models and rows.num_full >= limit:
            break
    unused.warn(source, findings)
    return rows.samples(source), rows.ids.values


def side_from_records(
    records: Iterable[Record], fields: Fields, root: Root, source: str
) -> tuple[tuple[Item, ...], list[object]]:
    """Return the prompts of a table of prompts, empty ones included, and their ids."""
    head, stream = _peek(records, source)
    if fields.prompt is None and is_request(head):
        head, stream = _peek(map(request_record, stream), source)
    name = prompt_field_of(head.fields, fields, (), source)
    if name is None:
        raise DataError(
            f"{source} has no prompt {fields.noun} among {listed(head.fields)}; "
            f"name it with `{fields.keyword('prompt')}`."
        )
    # The consumed records are kept: standard input cannot be read twice.
    seen = until_filled(stream, (name,))
    kind = fields.prompt_kind or kind_of_field(name, seen, root)
    prompts: list[Value] = []
    ids = JoinIds()
    for record in itertools.chain(seen, stream):
        place = Place(record.where, root, name, fields.keyword("prompt"), fields.noun)
        prompts.append(prompt_in(_prompt_value(record, name, fields.noun), kind, place))
        ids.add(record.fields)
    return cast(tuple[Item, ...], tuple(prompts)), ids.values


def _peek(records: Iterable[Record], source: str) -> tuple[Record, Iterator[Record]]:
    """Return the first record, and an iterator over all of them."""
    stream = iter(records)
    first = next(stream, None)
    if first is None:
        raise DataError(f"{source} contains no records.")
    longest = max(map(len, first.fields), default=0)
    # Names of fields are part of notes and messages.
    if longest > MAX_NAME:
        raise DataError(
            f"{first.where} has a field with a name of {longest:,} characters; at most "
            f"{MAX_NAME:,} are read."
        )
    return first, itertools.chain([first], stream)


class _Rows:
    """Pairs, as they are read from records."""

    def __init__(self, choice: ChosenFields, root: Root, fields: Fields) -> None:
        sides = ("output", "prompt", "quality")
        self.keywords = {name: fields.keyword(name) for name in sides}
        self.noun = fields.noun
        self.choice = choice
        self.root = root
        self.outputs: list[Value] = []
        self.prompts: list[Value | int | None] = []
        self.models: list[str] = []
        self.qualities: list[float] = []
        self.ids = JoinIds()
        self.records: list[tuple[str, int]] | None = []  # None once a record has no number
        self.num_full = 0  # pairs that are not empty

    def add(self, record: Record) -> None:
        """Add the outputs of a record, each with the record's prompt."""
        try:
            self._add(record)
        # Values that the parser of JSON could still read may be too deep for what follows.
        except RecursionError:
            raise DataError(f"{record.where} is nested too deeply.") from None

    def _add(self, record: Record) -> None:
        choice, where = self.choice, record.where
        prompt: Value | int | None = None
        if choice.prompt is not None:
            value = _prompt_value(record, choice.prompt, self.noun)
            if choice.prompt_kind == IDS:
                prompt = _id_in(value, choice.prompt, where)
            else:
                keyword = self.keywords["prompt"]
                place = Place(where, self.root, choice.prompt, keyword, self.noun)
                prompt = prompt_in(value, choice.prompt_kind, place)
        named = [value_of(record, name, self.noun) for name in choice.models]
        model = model_name(named, where)
        num_before = len(self.outputs)
        for name in choice.outputs:
            value = value_of(record, name, self.noun)
            frames = name.lower() == "frames"
            place = Place(where, self.root, name, self.keywords["output"], self.noun)
            for output in outputs_in(value, choice.output_kind, place, frames=frames):
                self.outputs.append(output)
                # The same object for each output: prompts are embedded and compared only once.
                self.prompts.append(prompt)
                self.models.append(model)
                self.num_full += not is_empty(output) and not is_empty(prompt)
        num_added = len(self.outputs) - num_before
        self.ids.add(record.fields, num_added)
        if choice.quality is not None:
            value = value_of(record, choice.quality, self.noun)
            place = Place(where, self.root, choice.quality, self.keywords["quality"], self.noun)
            self.qualities += qualities_in(value, num_added, place)
        # A subset copies records by number, so one without spoils them all.
        if record.number is None:
            self.records = None
        elif self.records is not None:
            self.records += [(record.source, record.number)] * num_added

    @property
    def last_prompt(self) -> str | None:
        """The prompt of the last output as a text or the name of its file; None without one."""
        last = None
        if self.prompts:
            last = self.prompts[-1]
        if isinstance(last, Item):
            return last.label
        if isinstance(last, int):
            return str(last)
        return None

    def samples(self, source: str) -> Samples:
        """Return what was read, empty outputs and prompts included."""
        choice = self.choice
        outputs = _side(self.outputs, choice.output_kind, source)
        prompts: Side | None = None
        models: tuple[str, ...] | None = None
        if choice.prompt is not None:
            prompts = _side(self.prompts, choice.prompt_kind, source)
        if choice.models:
            models = tuple(self.models)
        quality = None
        if choice.quality is not None:
            quality = np.array(self.qualities)
        records = None
        if self.records is not None:
            records = tuple(self.records)
        return Samples(outputs, prompts, models, source, quality=quality, records=records)


def _id_in(value: object, name: str, where: str) -> int:
    """Return the id of a prompt, from a column whose first value is an integer."""
    if type(value) is not int:
        problem = f"a {type(value).__name__}"
        if is_blank(value):
            problem = "no value"
        raise DataError(f"{where} has {problem} in {name!r}, whose values are ids: integers.")
    return value


def model_name(values: Sequence[object], where: str) -> str:
    """Return the name of a model that one or several fields give, made printable."""
    if any(isinstance(value, set | frozenset | list | dict | bytes) for value in values):
        raise DataError(f"{where} names its model by a collection; name it by a text or a number.")
    if any(map(is_blank, values)):
        raise DataError(f"{where} does not name its model; name it, or drop that output.")
    name = " / ".join(shown(clean_text(str(value))) for value in values)
    if len(name) > MAX_NAME:
        raise DataError(
            f"{where} names a model by {len(name):,} characters; at most {MAX_NAME:,} are read."
        )
    return name


def _side(values: Sequence[Any], kind: str, source: str) -> Side:
    """Return items as a tuple, embeddings as an array."""
    if kind == IDS:
        return np.array(values)
    if kind != "embedding":
        return tuple(values)
    # NumPy would make an array of objects of ragged rows, or fail without a reason.
    widths = {len(row) for row in values}
    if len(widths) > 1:
        lengths = ", ".join(map(str, sorted(widths)[:5]))
        raise DataError(f"the embeddings in {source} have different lengths: {lengths}.")
    try:
        return np.array(values, dtype=np.float64)
    # JSON integers have no limit, floats do.
    except OverflowError:
        raise DataError(
            f"the embeddings in {source} contain a number too large for a float."
        ) from None


def _prompt_value(record: Record, name: str, noun: str) -> object:
    """Return the prompt of a record.

    Alpaca splits a prompt into an instruction and the input that it is about; they are joined.
    """
    value = value_of(record, name, noun)
    if name.lower() != "instruction":
        return value
    about = record.fields.get("input")
    if isinstance(value, str) and isinstance(about, str) and about.strip():
        return f"{value}\n\n{about}"
    return value
