"""What is left out of chats and logs, and counted: failed requests, and images in prompts."""

from collections.abc import Callable, Iterator
from typing import Any

from divprism.data.readers.fields import Findings
from divprism.data.readers.guards import shown
from divprism.data.readers.tables import Record
from divprism.data.readers.values import has_other_parts
from divprism.data.wording import agreeing, counted
from divprism.errors import DataError

__all__ = ["succeeded", "with_text_prompts"]

_LONGEST = 200  # characters of a reason


def succeeded(
    records: Iterator[Record],
    failure: Callable[[Record], object],
    noun: str,
    source: str,
    findings: Findings,
) -> Iterator[Record]:
    """Yield the records that did not fail, and warn about the others at the end.

    Parameters
    ----------
    records : iterator of Record
        The records.
    failure : callable
        Why a record failed; None for one that did not.
    noun : str
        What a record is called: "request" or "sample".
    source : str
        The name of the source in messages.
    findings : Findings
        Receives the warning.
    """
    reasons: list[str] = []
    count = 0
    for record in records:
        count += 1
        problem = failure(record)
        if problem is None:
            yield record
        else:
            reason = shown(str(problem)[:_LONGEST]).rstrip(".")
            reasons.append(f"{record.where}: {reason}")
    if not reasons:
        return
    if len(reasons) == count:
        raise DataError(f"every {noun} in {source} failed (first: {reasons[0]}).")
    were = agreeing(len(reasons), "was", "were")
    findings.warn(
        f"{noun}s-failed",
        f"{len(reasons):,} of {count:,} {noun}s in {source} failed and {were} left out "
        f"(first: {reasons[0]}).",
    )


def with_text_prompts(
    records: Iterator[Record],
    prompt_of: Callable[[Record], Any],
    source: str,
    findings: Findings,
    keyword: str,
) -> Iterator[Record]:
    """Yield all records, and warn at the end if prompts hold more than the texts that are read.

    `keyword` is what names the field of prompts: `prompt_field` or `prompt`.
    """
    found: list[str] = []
    for record in records:
        if has_other_parts(prompt_of(record)):
            found.append(record.where)
        yield record
    if not found:
        return
    have = counted(len(found), "prompt has", "prompts have")
    findings.warn(
        "prompt-parts-left-out",
        f"{have} images or other parts beside text (first: {found[0]}), which are not read: "
        f"prompts of {source} that differ only by them count as one prompt. Compare ids instead, "
        f"with `{keyword}` and the categorical `kernel_t`, or embed the images yourself.",
    )
