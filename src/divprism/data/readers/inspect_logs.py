"""Samples of inspect-ai: prompts in 'input', outputs in 'output', epochs as further outputs."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from divprism.data.readers.eval_files import RUN_STATUS, run_of
from divprism.data.readers.failures import succeeded, with_text_prompts
from divprism.data.readers.fields import Fields, Findings
from divprism.data.readers.guards import shown
from divprism.data.readers.openai_logs import outputs_of_choices
from divprism.data.readers.tables import Record
from divprism.data.wording import counted
from divprism.errors import DataError

__all__ = ["inspect_records", "is_inspect", "one_run_each"]

_ATTACHMENT = "attachment://"


def is_inspect(record: Record) -> bool:
    """Whether a record is a sample of a log."""
    output = record.fields.get("output")
    return {"epoch", "input"} <= record.fields.keys() and isinstance(output, dict)


def inspect_records(
    records: Iterator[Record], source: str, findings: Findings, fields: Fields
) -> Iterator[Record]:
    """Yield samples as plain records; those that ended with an error are left out and counted."""
    runs = _with_known_status(records, findings)
    complete = succeeded(runs, _failure, "sample", source, findings)
    keyword = fields.keyword("prompt")
    for record in with_text_prompts(complete, _chat_of, source, findings, keyword):
        sample = record.fields
        attached = sample.get("attachments")
        if not isinstance(attached, dict):
            attached = {}
        plain = {key: value for key, value in sample.items() if key != "attachments"}
        plain["prompt"] = _resolved(sample.get("input"), attached)
        plain["output"] = _outputs(sample.get("output"), attached)
        yield Record(plain, record.where, record.source)


def _with_known_status(records: Iterator[Record], findings: Findings) -> Iterator[Record]:
    """Yield samples without the status of their log, and warn once about each unfinished log."""
    unfinished = set()
    for record in records:
        fields = dict(record.fields)
        status = fields.pop(RUN_STATUS, "success")
        if status != "success" and record.source not in unfinished:
            unfinished.add(record.source)
            findings.warn(
                "log-not-finished",
                f"the run of {record.source} ended with the status {shown(str(status))!r} instead "
                "of 'success', so that samples may be missing; run it again, or retry it with "
                "inspect eval-retry.",
            )
        yield Record(fields, record.where, record.source)


def _chat_of(record: Record) -> object:
    return record.fields.get("input")


def _failure(record: Record) -> object:
    error = record.fields.get("error")
    if isinstance(error, dict):
        return error.get("message") or "error"
    return error


def _outputs(output: Any, attached: Mapping[str, Any]) -> list[object]:
    texts = None
    if isinstance(output, dict):
        texts = outputs_of_choices(_resolved(output.get("choices"), attached))
    return list(texts or [""])


def _resolved(value: Any, attached: Mapping[str, Any]) -> Any:
    """Return a value with long texts, which a log may keep apart, in their places."""
    if isinstance(value, str) and value.startswith(_ATTACHMENT):
        return attached.get(value.removeprefix(_ATTACHMENT), value)
    if isinstance(value, list):
        return [_resolved(entry, attached) for entry in value]
    if isinstance(value, dict):
        return {key: _resolved(entry, attached) for key, entry in value.items()}
    return value


def one_run_each(paths: Sequence[Path], findings: Findings) -> list[Path]:
    """Return the logs of a folder, one for each task and model.

    Of several runs of a task by a model the successful one is read: the others were attempts at
    the same samples, and together they would look like more outputs.
    """
    runs: dict[tuple[str, ...], list[Path]] = defaultdict(list)
    statuses = {}
    for path in paths:
        run, statuses[path] = run_of(path, shown(path))
        runs[(run.get("task", ""), run.get("model", ""))].append(path)
    kept: list[Path] = []
    for (task, model), logs in runs.items():
        successes = [path for path in logs if statuses[path] == "success"]
        chosen = logs
        if len(logs) > 1:
            chosen = successes
        if len(chosen) != 1:
            raise DataError(
                f"{shown(logs[0].parent)} contains {len(logs)} runs of {shown(task)} by "
                f"{shown(model)}; name the file to read."
            )
        kept += chosen
    left_out = len(paths) - len(kept)
    if left_out:
        logs_of = counted(left_out, "log", "logs")
        findings.note(f"{logs_of} left out: attempts that did not succeed, beside one that did")
    return [path for path in paths if path in set(kept)]
