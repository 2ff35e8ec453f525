"""Outputs and their separate prompts: joined by id, or else row by row."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from divprism.data.items import Item
from divprism.data.readers.fields import Findings
from divprism.data.readers.guards import shown
from divprism.data.readers.shards import require_same_parts
from divprism.data.samples import Samples, Side
from divprism.data.wording import agreeing, counted
from divprism.errors import DataError

__all__ = ["Prompts"]


@dataclass(frozen=True)
class Prompts:
    """Prompts that were read from a source of their own.

    Attributes
    ----------
    side : Side
        The prompts.
    keys : sequence
        The id of each prompt; None for one without, empty for arrays.
    name : str
        Their source in messages.
    shards, output_shards : sequence of Path
        The files of the prompts and of the outputs, where they are several.
    """

    side: Side
    keys: Sequence[object]
    name: str
    shards: Sequence[Path] = ()
    output_shards: Sequence[Path] = ()

    def join(
        self, samples: Samples, ids: Sequence[object], findings: Findings, each: int = 1
    ) -> Samples:
        """Return samples with these prompts.

        Parameters
        ----------
        samples : Samples
            The outputs.
        ids : sequence
            The prompt id of each output; empty if the source has none.
        findings : Findings
            Receives notes and warnings.
        each : int, optional
            Number of consecutive outputs that may share a prompt.
        """
        # Where both sides have ids, one that is missing is a mistake: row by row, the others would
        # get prompts that their ids contradict.
        if _has_ids(ids) and _has_ids(self.keys):
            _require_ids(ids, f"outputs in {samples.source}", "join the prompts by")
            _require_ids(self.keys, f"prompts in {self.name}", "join the outputs by")
            return replace(samples, prompts=self._by_id(samples.source, ids, findings))
        return self._row_by_row(samples, ids, findings, each)

    def _row_by_row(
        self, samples: Samples, ids: Sequence[object], findings: Findings, each: int
    ) -> Samples:
        side = self.side
        # Prompts with a row for each of the k outputs are accepted as well, unchanged.
        if each > 1 and len(side) * each == len(samples):
            side = _repeated(side, each)
        if len(side) != len(samples):
            raise DataError(
                f"outputs and prompts must pair up row by row; got {len(samples):,} outputs in "
                f"{samples.source} and {len(side):,} prompts in {self.name}. "
                "Repeat a prompt once for each of its outputs."
            )
        require_same_parts(self.output_shards, self.shards, "prompts")
        _check_agreement(side, ids, samples.source, self.name)
        # For two arrays, pairing row by row is what everyone expects.
        if isinstance(samples.outputs, tuple):
            findings.note(f"{samples.source}: prompts from {self.name}, row by row")
        return replace(samples, prompts=side)

    def _by_id(self, source: str, ids: Sequence[object], findings: Findings) -> tuple[Item, ...]:
        name = self.name
        # As strings: one table may store the ids as numbers, the other as texts.
        row_of = {str(key): row for row, key in enumerate(self.keys)}
        # Two prompts with one id: which of them an output belongs to is unknown.
        if len(row_of) < len(self.keys):
            raise DataError(f"{name} has a prompt_id twice; outputs cannot be joined to it.")
        missing = [key for key in ids if str(key) not in row_of]
        if missing:
            how_many = counted(len(missing), "output has", "outputs have")
            first = shown(str(missing[0])[:60])
            raise DataError(
                f"{how_many} a prompt_id that {name} does not contain (first: {first})."
            )
        num_unused = len(row_of) - len({str(key) for key in ids})
        if num_unused:
            have = agreeing(num_unused, "has", "have")
            findings.warn(
                "prompts-without-outputs",
                f"{num_unused:,} of {len(row_of):,} prompts in {name} {have} no output.",
            )
        findings.note(f"{source}: prompts joined from {name} by id")
        return tuple(self.side[row_of[str(key)]] for key in ids)


def _has_ids(ids: Sequence[object]) -> bool:
    return any(key is not None for key in ids)


def _require_ids(ids: Sequence[object], subject: str, purpose: str) -> None:
    num_missing = list(ids).count(None)
    if num_missing:
        have = agreeing(num_missing, "has", "have")
        raise DataError(
            f"{num_missing:,} of {len(ids):,} {subject} {have} no prompt_id to {purpose}; add it, "
            "or leave the ids out of all to pair row by row."
        )


def _repeated(side: Side, each: int) -> Side:
    if isinstance(side, np.ndarray):
        return np.repeat(side, each, axis=0)
    return tuple(itertools.chain.from_iterable([item] * each for item in side))


def _check_agreement(side: Side, ids: Sequence[object], name: str, prompts: str) -> None:
    """Refuse a pairing by rows that gives outputs with the same prompt_id different prompts."""
    content_of: dict[str, bytes] = {}
    for row, key in enumerate(ids):
        if key is None:
            continue
        # By content: equal prompts may be on several lines of the list.
        content = _content(side, row)
        if content_of.setdefault(str(key), content) != content:
            label = shown(str(key)[:60])
            raise DataError(
                f"paired row by row, outputs of {name} with the same prompt_id ({label}) "
                f"would get different prompts; add the prompt_id to those in {prompts}."
            )


def _content(side: Side, row: int) -> bytes:
    if isinstance(side, np.ndarray):
        return side[row].tobytes()
    return side[row].digest()
