"""The bandwidth of the prompts moves diversity between the two factors."""

from pathlib import Path

import numpy as np

import divprism as dp
from divprism.report.table import Column, Table
from experiments.papers.base import EARLIER, FAILS, HOLDS, Outcome, Request, experiment
from experiments.papers.plots import lines, panels
from experiments.papers.setups import BANDWIDTH_X, mixed_prompts, pairs_for, rises

_BANDWIDTHS = (0.1, 0.2, 0.3, 0.5, 0.8, 1.5)
_SCALES = {"scale 1": 1.0, "scale 4": 4.0}

Vectors = dict[str, tuple[np.ndarray, np.ndarray]]
"""Vectors of outputs and prompts by model."""


@experiment(
    "text-bandwidth",
    EARLIER,
    "Fig. 22 of an earlier version (App. D.7)",
    claim=(
        "A wider kernel on prompts raises Conditional-Vendi and lowers Information-Vendi, and "
        "changes the order of the models little."
    ),
    stand_in="The digit model at two guidance scales, for the models of the paper.",
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
    return _judged(rows, curves)


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


def _judged(rows: list[tuple], curves: dict[str, list[tuple[float, float]]]) -> Outcome:
    """Whether both factors are monotone, and models keep their order."""
    monotone = True
    for values in curves.values():
        conditional, information = zip(*values, strict=True)
        monotone = monotone and rises(conditional) and rises(information[::-1])
    of_models = [[value[0] for value in values] for values in curves.values()]
    # At each bandwidth, the models from the least Conditional-Vendi to the most.
    orders = {tuple(np.argsort(values)) for values in zip(*of_models, strict=True)}
    verdict = FAILS
    if monotone and len(orders) == 1:
        verdict = HOLDS
    words = "at some bandwidths only"
    if len(orders) == 1:
        words = "at every bandwidth"
    told = " and ".join(
        f"from {values[0]:.1f} to {values[-1]:.1f} for {name}"
        for name, values in zip(curves, of_models, strict=True)
    )
    reason = (
        f"From bandwidth {_BANDWIDTHS[0]} to {_BANDWIDTHS[-1]}, Conditional-Vendi goes {told}; the "
        f"models keep their order {words}."
    )
    figure, axes = panels(2)
    for index, (title, ax) in enumerate(zip(("Conditional", "Information"), axes, strict=True)):
        drawn = {name: [value[index] for value in values] for name, values in curves.items()}
        lines(ax, _BANDWIDTHS, drawn, title=f"{title}-Vendi", xlabel="bandwidth", log=True)
    columns = (
        Column("model", "model"),
        Column("bandwidth", "bandwidth of prompts", "g"),
        Column("conditional_vendi", "Conditional-Vendi", ".2f"),
        Column("information_vendi", "Information-Vendi", ".2f"),
    )
    return Outcome(verdict, reason, Table(columns, tuple(rows)), figure)
