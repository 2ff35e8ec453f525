"""Programs whose records are read without naming fields: which records are theirs, and how.

A new one is a row of `DIALECTS`, and a module that turns its records into plain ones.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from divprism.data.readers.fields import Fields, Findings
from divprism.data.readers.inspect_logs import inspect_records, is_inspect
from divprism.data.readers.lm_eval import is_lm_eval, lm_eval_records
from divprism.data.readers.openai_logs import is_openai, openai_records
from divprism.data.readers.tables import Record

__all__ = ["DIALECTS", "Dialect", "dialect_of"]


@dataclass(frozen=True)
class Dialect:
    """The records of a program.

    Attributes
    ----------
    note : str
        What they are, and where prompts and outputs are from.
    fits : callable
        Whether a record, the first of a source, is one of them.
    plain : callable
        From records, the source, findings and fields to plain records.
    output, prompt : str
        Fields of the plain records; those of prompts may lack.
    replaced : tuple of str
        Fields of the records whose content `prompt` holds, so that it stands for their names.
    """

    note: str
    fits: Callable[[Record], bool]
    plain: Callable[[Iterator[Record], str, Findings, Fields], Iterator[Record]]
    output: str = "output"
    prompt: str = "prompt"
    replaced: tuple[str, ...] = ()

    def fields(self, fields: Fields, head: Record) -> Fields:
        """Return fields with those of the plain records where the user names none."""
        prompt, prompt_kind = fields.prompt, fields.prompt_kind
        is_open = prompt is None or prompt in self.replaced
        if is_open and self.prompt in head.fields:
            prompt, prompt_kind = self.prompt, "text"
        return replace(
            fields, output=self.output, output_kind="text", prompt=prompt, prompt_kind=prompt_kind
        )


DIALECTS = (
    Dialect(
        "samples of lm-eval, prompts from 'arguments', outputs from 'resps'",
        is_lm_eval,
        lm_eval_records,
        output="resps",
        prompt="arguments",
    ),
    Dialect(
        "samples of inspect, prompts from 'input', outputs from 'output', epochs as outputs",
        is_inspect,
        inspect_records,
        replaced=("input",),
    ),
    Dialect(
        "chats or answers as OpenAI stores them, a prompt from the messages before each answer",
        is_openai,
        openai_records,
        replaced=("messages",),
    ),
)
"""In order: the first that fits is used."""


def dialect_of(head: Record) -> Dialect | None:
    """Return the program that wrote a record; None for a table of no program in particular."""
    for dialect in DIALECTS:
        if dialect.fits(head):
            return dialect
    return None
