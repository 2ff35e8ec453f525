"""Scores by independent jobs: a state of `Metric` from each, merged into one result."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from divprism.analysis.metric import Metric
from divprism.data.files import open_file
from divprism.data.readers.guards import shown
from divprism.data.samples import Samples
from divprism.engines import Progress
from divprism.errors import ArgumentError, DataError
from divprism.scores.settings import Settings

__all__ = ["add_samples", "merge_states", "metric_for"]

# The features of a chunk are in memory three times: of outputs, of prompts and of pairs.
_CHUNK_ROWS = 2048
_BLOCK = 1 << 20  # bytes hashed at a time


def metric_for(samples: Samples, settings: Settings, *, num_features: int = 1000) -> Metric:
    """Return an empty metric for some samples, which need not be embedded yet.

    Parameters
    ----------
    samples : Samples
        A part of the data.
    settings : Settings
        Kernels with their bandwidths, order, truncation and seed: the same for all parts.
    num_features : int, optional
        Number of random frequencies of Gaussian kernels.

    Raises
    ------
    ArgumentError
        If a kernel is not given: a part of the data cannot choose the bandwidth of all of it.
    """
    if samples.prompts is None and settings.kernel_t is not None:
        raise ArgumentError(f"`bandwidth_t` was given, but {samples.source} has no prompts.")
    if settings.kernel_x is None:
        raise ArgumentError(_no_bandwidth("bandwidth_x"))
    if samples.prompts is not None and settings.kernel_t is None:
        raise ArgumentError(_no_bandwidth("bandwidth_t"))
    if settings.auto_truncation:
        raise ArgumentError(
            "`truncation` must be a number, the same for all states: a part of the data cannot "
            "choose it."
        )
    return Metric(
        settings.kernel_x,
        settings.kernel_t,
        num_features=num_features,
        order=settings.order,
        truncation=settings.truncation,
        rng=settings.rng,
    )


def _no_bandwidth(name: str) -> str:
    return (
        f"`{name}` must be given, and be the same for all states: a part of the data cannot choose "
        "it (`config` takes the bandwidths of an earlier result)."
    )


def add_samples(metric: Metric, samples: Samples, progress: Progress | None = None) -> None:
    """Add all rows of some samples to a metric, in chunks.

    Parameters
    ----------
    metric : Metric
        The metric.
    samples : Samples
        Vectors of outputs, and of prompts if they have any.
    progress : callable, optional
        Called after each chunk with a text and the fraction that is done.
    """
    for start in range(0, len(samples), _CHUNK_ROWS):
        rows = slice(start, start + _CHUNK_ROWS)
        prompts = samples.prompts
        if prompts is not None:
            prompts = prompts[rows]
        metric.update(samples.outputs[rows], prompts)
        if progress is not None:
            done = min(start + _CHUNK_ROWS, len(samples))
            progress(f"{done:,} of {len(samples):,} rows", done / len(samples))


def merge_states(paths: Sequence[str | Path]) -> Metric:
    """Return a metric that has seen what the metrics in several files have seen.

    Files are merged in the order of their hashes, so neither their order nor their names change a
    bit of the result. Memory holds two states at a time.

    Parameters
    ----------
    paths : sequence of str or Path
        Files that `Metric.save` wrote.

    Raises
    ------
    DataError
        If a file is not a state, if two have different settings or the same content.
    """
    if not paths:
        raise ArgumentError("`paths` must name at least one state.")
    by_content: dict[bytes, str | Path] = {}
    for path in paths:
        digest = _digest(path)
        if digest in by_content:
            raise DataError(
                f"{shown(by_content[digest])} and {shown(path)} hold the same state; "
                "merge each once."
            )
        by_content[digest] = path
    first, *others = (by_content[digest] for digest in sorted(by_content))
    merged = Metric.load(first)
    for path in others:
        metric = Metric.load(path)
        try:
            merged.merge(metric)
        except (ArgumentError, DataError) as error:
            raise DataError(f"cannot merge {shown(first)} and {shown(path)}: {error}") from None
    return merged


def _digest(path: str | Path) -> bytes:
    """Return the hash of a regular file, read block by block: states have up to hundreds of MB."""
    digest = hashlib.sha256()
    with open_file(path) as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.digest()
