"""More and more types of object, which the prompts name or not."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

import divprism as dp
from divprism.report.table import Column, Table
from experiments.papers.base import (
    CONDITIONAL,
    TITLES,
    Outcome,
    Request,
    but_not,
    experiment,
    judged,
)
from experiments.papers.plots import legend, lines, panels
from experiments.papers.setups import KERNELS, embed_all
from experiments.world.digits import DIGITS, INKS, digit_model

# Powers of the number of types: from one type to ten, scores under specific prompts may grow by a
# factor of 2, and those under vague prompts must by 3.
_CONSTANT = 0.301
_GROWTH = 0.477

# The field of real data that names the type of each output.
_FIELD = "variety"

# Scores that do not see the prompts.
_PLAIN = ("vendi", "rke")

SCORES = ("vendi", "conditional_vendi", "cluster_vendi", "rke", "conditional_rke", "cluster_rke")


@dataclass(frozen=True, eq=False)
class Typed:
    """Outputs of several types of object, with prompts that name the type and that do not.

    Attributes
    ----------
    x : ndarray of shape (n, d)
        Vectors of the outputs.
    types : ndarray of shape (n,)
        The type of each, counted from 0 within what a vague prompt asks for.
    prompts : dict of str to list of str
        The prompt of each output, "vague" and "specific".
    kernels : dict or None
        Kernels of both sides; None for the default bandwidths, chosen on outputs of all types.
    """

    x: np.ndarray
    types: np.ndarray
    prompts: dict[str, list[str]]
    kernels: dict[str, dp.Gaussian] | None = None


@experiment(
    "fig5",
    CONDITIONAL,
    "Fig. 5, 16-18",
    claim=(
        "With more types of object among the images, Vendi grows whatever the prompts say. "
        "Conditional-Vendi and -RKE grow fast if the prompts do not name the type, and only "
        "slightly if they do, as do the scores inside the true clusters of prompts."
    ),
    stand_in=(
        "One to ten digits for types of animal or fruit, in three inks for backgrounds. Vague "
        "prompts name the ink, specific ones the ink and the digit. Each type adds 150 images, so "
        "that n grows from 150 to 1,500."
    ),
    data=(
        "a folder that `divprism.load` reads, whose prompts do not name the type of object, with "
        "the type of each output in a field `variety`"
    ),
)
def types(request: Request) -> Outcome:
    """Scores of outputs of the first j types, under vague and specific prompts."""
    typed = _typed(request)
    rows = []
    for name, prompts in typed.prompts.items():
        vectors = embed_all(prompts)
        kernels = typed.kernels
        if kernels is None:
            # Chosen once, on all types: only the number of types may change the scores.
            chosen = dp.evaluate(typed.x, vectors, num_permutations=0).settings
            kernels = {"kernel_x": chosen.kernel_x, "kernel_t": chosen.kernel_t}
        clusters = np.unique(prompts, return_inverse=True)[1]
        for count in range(1, typed.types.max() + 2):
            among = typed.types < count
            found = dp.evaluate(
                typed.x[among],
                vectors[among],
                labels=clusters[among],
                num_permutations=0,
                **kernels,
            )
            rows.append((count, name, *(float(found.scores[score]) for score in SCORES)))
    return _judged(rows)


def _typed(request: Request) -> Typed:
    if request.data is not None:
        return _loaded(request.data)
    return _digits(request)


def _digits(request: Request) -> Typed:
    """Images of ten digits in three inks."""
    model = digit_model()
    per_type = request.choose(150, 60)
    digits = np.repeat(np.arange(len(DIGITS)), per_type)
    inks = np.tile(np.arange(len(INKS)), digits.size)[: digits.size]
    specific = [f"a {INKS[ink]} {DIGITS[digit]}" for digit, ink in zip(digits, inks, strict=True)]
    vague = [f"a {INKS[ink]} digit" for ink in inks]
    features = model.features(model.generate(specific))
    return Typed(features, digits, {"vague": vague, "specific": specific}, KERNELS)


def _loaded(data: Path) -> Typed:
    """Real outputs: their prompts are the vague ones, those with the type the specific ones."""
    samples = dp.load(data, model_field=_FIELD)
    if not isinstance(samples.prompts, tuple):
        raise dp.DataError(f"{data} holds no prompts.")
    assert samples.models is not None
    vague = [prompt.label for prompt in samples.prompts]
    specific = []
    found: dict[str, list[str]] = {}
    places = []
    for prompt, kind in zip(vague, samples.models, strict=True):
        specific.append(f"{prompt}: {kind}")
        of_prompt = found.setdefault(prompt, [])
        if kind not in of_prompt:
            of_prompt.append(kind)
        places.append(of_prompt.index(kind))
    x = np.asarray(dp.embed(dp.Samples(samples.outputs)).outputs)
    return Typed(x, np.array(places), {"vague": vague, "specific": specific})


def _judged(rows: list[tuple]) -> Outcome:
    count = max(row[0] for row in rows)
    enough, little = count**_GROWTH, count**_CONSTANT
    growth: dict[tuple[str, str], float] = {}
    figure, axes = panels(4, 2)
    for index, name in enumerate(("vague", "specific")):
        own = [row for row in rows if row[1] == name]
        for half, scores in enumerate((SCORES[:3], SCORES[3:])):
            curves = {}
            for score in scores:
                values = [row[2 + SCORES.index(score)] for row in own]
                curves[TITLES[score]] = values
                growth[name, score] = values[-1] / values[0]
            given = {"xlabel": "number of types", "ylabel": "score", "log": True, "counts": True}
            ax = axes[2 * half + index]
            lines(ax, range(1, count + 1), curves, title=f"{name} prompts", **given)
    legend(figure)
    claims: dict[str, bool] = {}
    for (name, score), factor in growth.items():
        part = f"{TITLES[score]} under {name} prompts (by a factor of {factor:.2f})"
        if name == "vague":
            claims[f"growth of {part}"] = factor > enough
        elif score not in _PLAIN:
            claims[f"little growth of {part}"] = factor < little
    verdict, failed = judged(claims)
    told = []
    for name in ("vague", "specific"):
        own = [f"{TITLES[score]} {growth[name, score]:.2f}" for score in SCORES]
        told.append(f"under {name} prompts {', '.join(own)}")
    reason = (
        f"From 1 type to {count}, scores grow by these factors: {'; '.join(told)}. The paper "
        f"gives no thresholds; here growth counts from {enough:.1f} on, and up to {little:.1f} "
        f"counts as little (3 and 2 for ten types, and the same powers of other numbers of "
        f"types).{but_not(failed)}"
    )
    columns = [Column("types", "types", "d"), Column("prompts", "prompts")]
    columns += [Column(score, TITLES[score], ".2f") for score in SCORES]
    return Outcome(verdict, reason, Table(tuple(columns), tuple(rows)), figure)
