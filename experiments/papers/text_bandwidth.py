"""The bandwidth of the prompts moves diversity between the two factors."""

from pathlib import Path

import numpy as np

import divprism as dp
from divprism.report.table import Column, Table
from experiments.papers.base import (
    EARLIER,
    Outcome,
    Request,
    but_not,
    experiment,
    judged,
)
from experiments.papers.plots import legend, lines, panels
from experiments.papers.setups import BANDWIDTH_X, mixed_prompts, pairs_for, rises

_BANDWIDTHS = (0.1, 0.2, 0.3, 0.5, 0.8, 1.5)
_SCALES = {"scale 0.5": 0.5, "scale 1": 1.0, "scale 2": 2.0, "scale 4": 4.0}

Vectors = dict[str, tuple[np.ndarray, np.ndarray]]
"""Vectors of outputs and prompts by model."""


@experiment(
    "text-bandwidth",
    EARLIER,
    "Fig. 22 of an earlier version (App. D.7)",
    claim=(
        "With a wider kernel on prompts Information-Vendi falls, and four models keep their order "
        "at all bandwidths. That Conditional-Vendi rises is not said there; it follows, "
        "because Vendi, the product of both, stays the same."
    ),
    stand_in=(
        "The digit model at four scales of classifier-free guidance, for the four models of the "
        "paper."
    ),
    data=(
        "a file or folder that `divprism.load` reads, with the outputs of several models for text "
        "prompts"
    ),
)
def text_bandwidth(request: Request) -> Outcome:
    """Both factors at several bandwidths of the prompts, for several models."""
    if request.data is None:
        vectors, bandwidth_x = _digits(request.choose(2000, 400)), BANDWIDTH_X
    else:
        vectors, bandwidth_x = _loaded(request.data)
    rows, curves = [], {}
    for name, (x, t) in vectors.items():
        for bandwidth in _BANDWIDTHS:
            found = dp.evaluate(
                x,
                t,
                kernel_x=dp.Gaussian(bandwidth_x),
                kernel_t=dp.Gaussian(bandwidth),
                num_permutations=0,
            )
            values = (float(found.conditional_vendi), float(found.information_vendi))
            curves.setdefault(name, []).append(values)
            rows.append((name, bandwidth, *values))
    sizes = sorted({len(x) for x, _ in vectors.values()})
    return _judged(rows, curves, " and ".join(f"{size:,}" for size in sizes))


def _digits(n: int) -> Vectors:
    prompts = mixed_prompts(n)
    vectors = {}
    for name, scale in _SCALES.items():
        pairs = pairs_for(prompts, guidance_scale=scale)
        vectors[name] = (pairs.x, pairs.t)
    return vectors


def _loaded(data: Path) -> tuple[Vectors, float]:
    """Vectors of real outputs, and the default bandwidth of the outputs of all models."""
    embedded = dp.embed(dp.load(data))
    if embedded.models is None or len(set(embedded.models)) < 2:
        raise dp.DataError(f"{data} holds the outputs of one model only.")
    vectors = {}
    for name, part in embedded.by_model().items():
        vectors[name] = (np.asarray(part.outputs), np.asarray(part.prompts))
    return vectors, dp.DistinctPrompts().bandwidth(np.asarray(embedded.outputs))


def _judged(rows: list[tuple], curves: dict[str, list[tuple[float, float]]], sizes: str) -> Outcome:
    """Whether both factors are monotone, and models keep their order."""
    claims: dict[str, bool] = {}
    drawn: tuple[dict, dict] = ({}, {})
    for name, values in curves.items():
        drawn[0][name], drawn[1][name] = (list(scores) for scores in zip(*values, strict=True))
        claims[f"Conditional-Vendi of {name} rises at every step"] = rises(drawn[0][name])
        claims[f"Information-Vendi of {name} falls at every step"] = rises(drawn[1][name][::-1])
    titles = ("Conditional-Vendi", "Information-Vendi")
    for title, of_models in zip(titles, drawn, strict=True):
        # At each bandwidth, the models from the least to the most.
        orders = [tuple(np.argsort(own)) for own in zip(*of_models.values(), strict=True)]
        claims[f"the models keep their order by {title}"] = len(set(orders)) == 1
    verdict, failed = judged(claims)
    parts = []
    for title, of_models in zip(titles, drawn, strict=True):
        told = ", ".join(
            f"{own[0]:.1f} to {own[-1]:.1f} ({name})" for name, own in of_models.items()
        )
        parts.append(f"{title} goes from {told}")
    reason = (
        f"From bandwidth {_BANDWIDTHS[0]} to {_BANDWIDTHS[-1]}, {'; '.join(parts)}. "
        f"{len(claims) - len(failed)} of {len(claims)} claims hold for these {len(curves)} models "
        f"(the paper has four), with {sizes} outputs of each.{but_not(failed)}"
    )
    figure, axes = panels(2)
    for title, of_models, ax in zip(titles, drawn, axes, strict=True):
        given = {"xlabel": "bandwidth of the prompts", "ylabel": "score", "log": True}
        lines(ax, _BANDWIDTHS, of_models, title=title, **given)
    legend(figure)
    columns = (
        Column("model", "model"),
        Column("bandwidth", "bandwidth of prompts", "g"),
        Column("conditional_vendi", "Conditional-Vendi", ".2f"),
        Column("information_vendi", "Information-Vendi", ".2f"),
    )
    return Outcome(verdict, reason, Table(columns, tuple(rows)), figure)
