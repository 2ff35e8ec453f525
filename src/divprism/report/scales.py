"""One scale for the plots of all models of a page: a steeper line then is a steeper line."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from divprism.report.documents import Document
from divprism.scores.spec import curve_spec

__all__ = ["Scale", "Scales", "scales_of"]

_MARGIN = 1.08  # on either side of the data, as a factor: the axes are logarithmic

Range = tuple[float, float]


@dataclass(frozen=True)
class Scale:
    """The ranges of the two axes of a plot."""

    x: Range
    y: Range


@dataclass(frozen=True)
class Scales:
    """The ranges of the plots behind the numbers; empty where each plot has its own."""

    spectra: Scale | None = None
    sweep: Mapping[str, Scale] = field(default_factory=dict)
    convergence: Mapping[str, Scale] = field(default_factory=dict)


def scales_of(details: Sequence[Mapping[str, Document]]) -> Scales:
    """Return the ranges that hold the data of all models, given the details of each."""
    if len(details) < 2:
        return Scales()
    spectra = [each["spectra"] for each in details if each.get("spectra")]
    sweeps = [each["sweep"] for each in details if each.get("sweep")]
    curves = [each["convergence"] for each in details if each.get("convergence")]
    return Scales(_of_spectra(spectra), _of_sweeps(sweeps), _of_curves(curves))


def _of_spectra(documents: Sequence[Document]) -> Scale | None:
    ranks, values = [2.0], []
    for document in documents:
        for spectrum in document.values():
            # Multiplicities of a quadrature may be negative: ranks are reached, not summed.
            reached = 0.0
            for weight in spectrum["weights"]:
                reached += weight
                ranks.append(reached)
            values += [value for value in spectrum["values"] if value > 0]
    if not values:
        return None
    return Scale((1.0, 1.1 * max(ranks)), _spanned(values))


def _of_sweeps(documents: Sequence[Document]) -> dict[str, Scale]:
    scales = {}
    for side in ("x", "t"):
        swept = [document[side] for document in documents if document[side] is not None]
        if not swept:
            continue
        bandwidths, scores = [], []
        for one in swept:
            bandwidths += [*one["bandwidths"], one["chosen"]]
            for values in one["scores"].values():
                scores += values
        if scores:
            scales[side] = Scale(_spanned(bandwidths), _spanned(scores))
    return scales


def _of_curves(documents: Sequence[Document]) -> dict[str, Scale]:
    sizes: list[float] = []
    values: dict[str, list[float]] = {}
    for document in documents:
        sizes += document["sizes"]
        for name, means in document["means"].items():
            family = curve_spec(name)[0].family
            values.setdefault(family, []).extend(means)
    return {family: Scale(_spanned(sizes), _spanned(scores)) for family, scores in values.items()}


def _spanned(values: Iterable[float]) -> Range:
    """Return the range of some positive values with a margin on a log axis."""
    listed = list(values)
    return min(listed) / _MARGIN, max(listed) * _MARGIN
