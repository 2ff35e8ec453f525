"""Requests and samples that failed, and so have no output: left out and counted."""

from collections.abc import Callable, Iterator

from divprism.data.readers.fields import Findings
from divprism.data.readers.guards import shown
from divprism.data.readers.tables import Record
from divprism.data.wording import agreeing
from divprism.errors import DataError

__all__ = ["succeeded"]

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
