"""Sample files of lm-eval: prompts in 'arguments', responses in 'resps'."""

from collections.abc import Iterator

from divprism.data.readers.fields import Fields, Findings
from divprism.data.readers.guards import shown
from divprism.data.readers.tables import Record
from divprism.errors import DataError

__all__ = ["is_lm_eval", "lm_eval_records"]


def is_lm_eval(record: Record) -> bool:
    """Whether a record has the fields that lm-eval writes."""
    return {"arguments", "resps"} <= record.fields.keys()


def lm_eval_records(
    records: Iterator[Record], source: str, findings: Findings, fields: Fields
) -> Iterator[Record]:
    """Yield the records of one filter of each file as plain records.

    lm-eval writes a document once for each filter; the responses themselves are the same. Tasks,
    which have a file each, have filters of their own.
    """
    kept: dict[str, object] = {}
    others = set()
    for record in records:
        name = record.fields.get("filter")
        # Files of older versions have no filter: None equals None, and all lines are kept.
        first = kept.setdefault(record.source, name)
        if name == first:
            yield _plain(record)
        elif (first, name) not in others:
            others.add((first, name))
            findings.note(
                f"{source}: only lines of filter {shown(first)}; those of {shown(name)} repeat them"
            )


def _plain(record: Record) -> Record:
    """Return a record of lm-eval with the prompt and the responses as plain fields."""
    prompt = record.fields.get("arguments")
    # Old versions write [[prompt, options]], new ones {"gen_args_0": {"arg_0": prompt, ...}}.
    while isinstance(prompt, list | dict) and prompt:
        if isinstance(prompt, dict):
            prompt = list(prompt.values())
        prompt = prompt[0]
    if not isinstance(prompt, str):
        raise DataError(f"{record.where} has no prompt in 'arguments'.")
    responses = record.fields.get("resps")
    # Multiple-choice tasks store log-likelihoods under the same name.
    if not _all_texts(responses):
        raise DataError(
            f"{record.where} contains log-likelihoods, not generated texts; "
            "there is no output to score."
        )
    # The prompt replaces the arguments; the dictionary keeps the order of its keys otherwise.
    fields = {**record.fields, "arguments": prompt, "resps": responses}
    return Record(fields, record.where, record.source)


def _all_texts(value: object) -> bool:
    if isinstance(value, list):
        return bool(value) and all(_all_texts(entry) for entry in value)
    return isinstance(value, str)
