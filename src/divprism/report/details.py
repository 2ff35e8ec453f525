"""What a report shows beyond the scores: spectra, a sweep of bandwidths, convergence, and groups of prompts with examples."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from divprism.analysis.bandwidth_sweep import bandwidth_sweep
from divprism.analysis.comparison import Comparison
from divprism.analysis.convergence import converge
from divprism.analysis.evaluation import SCHEMA, Evaluation
from divprism.analysis.groups import EigenGrouping, LabelGrouping, prompt_groups
from divprism.analysis.groups.grouping import Grouping
from divprism.core.arrays import to_numpy
from divprism.core.kernels import Gaussian
from divprism.core.spectrum import Spectrum
from divprism.data.samples import Samples
from divprism.errors import ArgumentError, DataError
from divprism.report.page import report_page
from divprism.report.plots import rank_curve
from divprism.report.thumbnails import thumbnail
from divprism.scores.bandwidth import BandwidthRule
from divprism.scores.settings import Settings

__all__ = ["detailed", "details", "html_report"]

MAX_THUMBNAILS = 240
"""Small pictures of a model, if nothing else is said: about a megabyte and a half."""
_PAGE_THUMBNAILS = 640  # of all models of a page: about four megabytes
_POINTS = 150  # of a spectrum: more than a plot can show
_FEW_UNITS = 20  # prompts that are too few to draw from


def html_report(
    result: Evaluation | Comparison | Mapping[str, Evaluation], labels: Any = None, **settings: Any
) -> str:
    """One self-contained HTML page: scores in words, plots, groups of prompts with examples, settings and warnings.

    Nothing in it is loaded from a network, and nothing that comes from the data can run.

    Parameters
    ----------
    result : Evaluation, Comparison, or dict of Evaluation
        As `evaluate`, `compare` and `evaluate_models` return them.
    labels, **settings
        As in `details`.

    Examples
    --------
    >>> import numpy as np, divprism as dp
    >>> page = dp.html_report(dp.evaluate(np.eye(20), np.repeat(np.arange(4), 5), kernel_x=dp.Cosine()))
    >>> "amount to 20 distinct ones" in page
    True
    """
    return report_page(detailed(result, labels, **settings))


def detailed(
    result: Evaluation | Comparison | Mapping[str, Evaluation], labels: Any = None, **settings: Any
) -> dict[str, Any]:
    """The result document with `details` of each model in it; arguments as in `html_report`."""
    if not isinstance(result, Evaluation | Comparison) and not (
        isinstance(result, Mapping)
        and result
        and all(isinstance(one, Evaluation) for one in result.values())
    ):
        raise ArgumentError(
            f"`result` must be an Evaluation, a Comparison or a dict of Evaluation; got {type(result).__name__}."
        )
    if isinstance(result, Evaluation):
        return result.to_dict() | {"details": details(result, labels, **settings)}
    results = result.results if isinstance(result, Comparison) else dict(result)
    if labels is not None:
        raise ArgumentError("`labels` belong to one model, and this result is of several.")
    asked = settings.pop("max_thumbnails", None)
    most = (
        min(MAX_THUMBNAILS, _PAGE_THUMBNAILS // len(results))
        if asked is None
        else asked // len(results)
    )
    documents = {
        model: one.to_dict() | {"details": details(one, max_thumbnails=most, **settings)}
        for model, one in results.items()
    }
    whole = result.to_dict() if isinstance(result, Comparison) else {"schema": SCHEMA}
    return whole | {"models": documents}


def details(
    result: Evaluation,
    labels: Any = None,
    *,
    num_groups: int = 10,
    num_modes: int = 3,
    num_examples: int = 4,
    max_thumbnails: int = MAX_THUMBNAILS,
    max_rows: int = 500,
    num_repeats: int = 3,
    max_pairs: int = 1000,
    progress: Callable[[str, float], None] | None = None,
) -> dict[str, Any]:
    """Spectra, sweep, convergence and groups of what an evaluation scored, with its kernels: plain values for `report_page`.

    Costs a sweep of `max_rows` pairs, some six evaluations of `max_pairs`, and the groups; some ten seconds by default.

    Parameters
    ----------
    result : Evaluation
        Of outputs that count alike: `evaluate` without `weights`.
    labels : flat collection of n labels, optional
        Groups of prompts; default `num_groups` by the prompt kernel.
    num_groups, num_modes, num_examples : int
        Of `prompt_groups`.
    max_thumbnails : int
        Small pictures, shared out over groups and modes; of the other outputs the file is named.
    max_rows : int
        Pairs that bandwidths are swept on, at most.
    num_repeats, max_pairs : int
        Of `converge`, and pairs that it is given at most: of more, a draw, whose verdicts hold all the more for the whole.

    Returns
    -------
    dict
        With the keys spectra, sweep, convergence and groups; None for what the data do not allow, the reason under `absent`.
    """
    samples = result.samples
    if samples is None:
        raise ArgumentError(
            "`result` does not hold what it scored; details are of an evaluation by `evaluate`."
        )
    if result.data.get("weighted"):
        raise ArgumentError(
            "details are of outputs that count alike; this evaluation has `weights`."
        )
    settings = result.settings
    found: dict[str, Any] = {
        "spectra": {name: _points(one) for name, one in result.spectra.items()}
    }
    absent: dict[str, str] = {}
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "sweep": lambda: _sweep(samples, result, max_rows),
        "convergence": lambda: _convergence(
            samples, result, settings, num_repeats, max_pairs, progress
        ),
        "groups": lambda: _groups(
            samples,
            settings,
            labels,
            progress,
            num_groups,
            max_thumbnails,
            num_modes=num_modes,
            num_examples=num_examples,
        ),
    }
    for name, make in parts.items():
        try:
            found[name] = make()
        except DataError as error:
            found[name] = None
            absent[name] = str(error)
    return found | {"absent": absent}


def _points(spectrum: Spectrum) -> dict[str, list[float]]:
    """A spectrum thinned to what can be seen on log axes: all of the first eigenvalues, ever fewer of the others.

    An eigenvalue that is left out is counted by the next one kept, so that ranks stay.
    """
    ranks, values = rank_curve(spectrum.values, spectrum.weights)
    kept = np.arange(ranks.size)
    if kept.size > _POINTS:
        kept = np.unique(np.geomspace(1, kept.size, _POINTS).round().astype(int)) - 1
    return {"values": values[kept].tolist(), "weights": np.diff(ranks[kept], prepend=0.0).tolist()}


@dataclass(frozen=True)
class _Used(BandwidthRule):
    """The bandwidths that an evaluation used."""

    bandwidths: tuple[tuple[str, float], ...]

    def bandwidth(self, x: Any, *, rng: int = 0, name: str = "x") -> float:
        """That of the side called `name`."""
        return dict(self.bandwidths)[name]


def _sweep(samples: Samples, result: Evaluation, max_rows: int) -> dict[str, Any]:
    sides = {"x": samples.outputs, "t": samples.prompts}
    used = []
    for side, data in sides.items():
        kernel = result.settings.kernel(side)
        if data is not None and not isinstance(kernel, Gaussian):
            raise DataError(
                "a sweep is over Gaussian bandwidths of both sides, and one side has another kernel."
            )
        if data is not None:
            used.append((side, kernel.bandwidth))
    found = bandwidth_sweep(
        sides["x"],
        sides["t"],
        max_rows=max_rows,
        settings=replace(result.settings, bandwidth_rule=_Used(tuple(used))),
    )
    return found.to_dict()


def _convergence(
    samples: Samples,
    result: Evaluation,
    settings: Settings,
    num_repeats: int,
    max_pairs: int,
    progress: Any,
) -> dict[str, Any]:
    kept = _drawn(samples, max_pairs, settings.rng)
    outputs, prompts = samples.outputs, samples.prompts
    if kept.size < len(samples):
        outputs = settings.kernel_x.pick(outputs, kept)
        prompts = None if prompts is None else settings.kernel_t.pick(prompts, kept)
    found = converge(
        outputs,
        prompts,
        num_repeats=num_repeats,
        progress=progress,
        settings=settings,
    )
    return found.to_dict() | {"drawn_from": len(samples)}


def _drawn(samples: Samples, most: int, seed: int) -> np.ndarray:
    """Rows of at most `most` pairs: all, or those of prompts drawn at random, with all their outputs, where prompts repeat."""
    count = len(samples)
    if count <= most:
        return np.arange(count)
    prompts = None if samples.prompts is None else to_numpy(samples.prompts)
    units = np.arange(count)
    if prompts is not None:
        units = np.unique(prompts, axis=0, return_inverse=True)[1].reshape(-1)
    order = np.random.default_rng(seed).permutation(int(units.max()) + 1)
    fits = np.cumsum(np.bincount(units)[order]) <= most
    if fits.sum() < _FEW_UNITS:  # a few large prompts: parts of all of them
        return np.sort(np.random.default_rng(seed).choice(count, most, replace=False))
    return np.flatnonzero(np.isin(units, order[fits]))


def _groups(
    samples: Samples,
    settings: Settings,
    labels: Any,
    progress: Any,
    num_groups: int,
    max_thumbnails: int,
    **shown: Any,
) -> dict[str, Any]:
    grouping: Grouping = EigenGrouping(num_groups) if labels is None else LabelGrouping(labels)
    found = prompt_groups(
        samples,
        grouping=grouping,
        progress=progress,
        **shown,
        settings=replace(settings, embedder_x=None, embedder_t=None),
    )
    document = found.to_dict()
    _add_thumbnails(document, found.items, max_thumbnails)
    return document


def _add_thumbnails(document: dict[str, Any], items: Samples, most: int) -> None:
    """Small pictures of the examples, the first of every mode before the second of any, until there are enough."""
    modes = [mode["outputs"] for group in document["groups"] for mode in group["modes"]]
    longest = max(map(len, modes), default=0)
    entries = [
        ("outputs", mode[place]) for place in range(longest) for mode in modes if place < len(mode)
    ]
    prompts = [("prompts", entry) for group in document["groups"] for entry in group["prompts"][:1]]
    shown: set[tuple[str, int]] = set()  # a row that stands in two places is shown in the first
    for side, entry in [*prompts, *entries]:
        given, key = getattr(items, side), (side, entry["row"])
        if len(shown) >= most or key in shown or not isinstance(given, tuple):
            continue
        picture = thumbnail(given[entry["row"]])
        if picture is not None:
            entry["thumbnail"] = picture
            shown.add(key)
