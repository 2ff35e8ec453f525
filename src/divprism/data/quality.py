"""The quality of outputs, as a user gives it: numbers, the name of a column, or a function."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from divprism.core.validation import check_quality
from divprism.data.columns import plain_column
from divprism.data.items import Media, Text
from divprism.data.readers.guards import is_url
from divprism.data.samples import Samples, Side
from divprism.data.wording import counted
from divprism.errors import ArgumentError, DataError

__all__ = ["QualityFunction", "column_of_quality", "with_quality"]

QualityFunction = Callable[[Any, Any], Any]
"""A function of the outputs and the prompts that returns a number for each output."""


def column_of_quality(quality: object) -> str | None:
    """Return the name of the column that holds the quality; None if it is given otherwise."""
    if not isinstance(quality, str):
        return None
    if is_url(quality):
        raise ArgumentError(
            "`quality` is a URL, which names no model: pass dp.Judge(MODEL) or "
            "dp.RewardModel(MODEL), with the address in QUALITY_BASE_URL, or a function that "
            "calls it."
        )
    return quality


def with_quality(samples: Samples, quality: object, *, are_given: bool) -> Samples:
    """Return the samples with the quality of each output.

    Parameters
    ----------
    samples : Samples
        A column that `quality` names has been read with them.
    quality : array (n,), function, str or None
        A function gets the outputs and the prompts: lists of strings, of paths or bytes of images,
        arrays, or None where there are no prompts.
    are_given : bool
        Whether the user gave these samples, and not what they were read from. Then numbers fit
        them even where outputs were left out.
    """
    if quality is None or isinstance(quality, str):
        return samples
    if callable(quality):
        values = quality(_plain(samples.outputs), _plain(samples.prompts))
        if values is None:
            raise DataError(
                "the function `quality` returned None; it has to return a number per output."
            )
        return replace(samples, quality=values)
    if samples.skipped and not are_given:
        raise DataError(
            f"{counted(samples.skipped, 'output is', 'outputs are')} empty and left out, so "
            "`quality` does not fit: drop these outputs first, or name a column as `quality`."
        )
    return replace(samples, quality=check_quality(plain_column(quality), len(samples)))


def _plain(side: Side | None) -> Any:
    """Return one side as a function of the user takes it."""
    if not isinstance(side, tuple):
        return side
    values: list[object] = []
    for item in side:
        if isinstance(item, Text):
            values.append(item.text)
        elif isinstance(item, Media):
            values.append(item.source)
        else:
            values.append(item)
    return values
