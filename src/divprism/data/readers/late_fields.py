"""Fields that later records have and the first one lacks, by which fields were chosen."""

from divprism.data.readers.fields import (
    ChosenFields,
    Fields,
    model_fields_of,
    prompt_field_of,
)
from divprism.data.readers.tables import Record
from divprism.data.readers.values import is_blank
from divprism.errors import DataError

__all__ = ["LateFields"]


class LateFields:
    """A check of each record for prompts and models that the choice of fields has not seen.

    Without it, outputs whose first record has no prompt would be scored without prompts.

    Parameters
    ----------
    head : Record
        The first record.
    choice : ChosenFields
        The fields that were chosen by it.
    fields : Fields
        What the user names.
    source : str
        The name of the source in messages.
    """

    def __init__(self, head: Record, choice: ChosenFields, fields: Fields, source: str) -> None:
        self._known = head.fields.keys()
        self._choice = choice
        self._fields = fields
        self._source = source
        self._is_complete = choice.prompt is not None and bool(choice.models)

    def check(self, record: Record) -> None:
        """Refuse a record that has a prompt or a model, if the first record has no field for it."""
        # Most sources have the same fields in each record.
        if self._is_complete or record.fields.keys() <= self._known:
            return
        if self._choice.prompt is None:
            name = prompt_field_of(record.fields, self._fields, self._choice.outputs, self._source)
            if name is not None:
                self._require_known(record, name, "prompts")
        if not self._choice.models:
            for name in model_fields_of(record.fields, self._fields, self._source):
                self._require_known(record, name, "models")

    def _require_known(self, record: Record, name: str, what: str) -> None:
        if name in self._known or is_blank(record.fields.get(name)):
            return
        raise DataError(
            f"{record.where} has {what} in the {self._fields.noun} {name!r}, which the first "
            f"record lacks; add it there, or remove it everywhere to score without {what}."
        )
