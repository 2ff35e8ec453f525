"""More and more types of object, which the prompts name or not."""

import numpy as np

import divprism as dp
from divprism.report.table import Column, Table
from experiments.papers.base import CONDITIONAL, FAILS, HOLDS, Outcome, Request, experiment
from experiments.papers.plots import lines, panels
from experiments.papers.setups import KERNELS
from experiments.world.digits import DIGITS, INKS, digit_model, embed

# Specific scores may grow by this factor from one type to ten, and vague ones must by more.
_CONSTANT = 2.0
_GROWTH = 3.0

SCORES = ("vendi", "conditional_vendi", "cluster_vendi", "rke", "conditional_rke", "cluster_rke")


@experiment(
    "fig5",
    CONDITIONAL,
    "Fig. 5, 16-18",
    claim=(
        "With more types of object among the images, Vendi grows whatever the prompts say. "
        "Conditional-Vendi and -RKE grow only if the prompts do not name the type, as do the "
        "scores inside the true clusters of prompts."
    ),
    stand_in=(
        "One to ten digits for types of animal or fruit, in three inks for backgrounds. Vague "
        "prompts name the ink, specific ones the ink and the digit."
    ),
)
def types(request: Request) -> Outcome:
    """Scores of images of the first j digits, under vague and specific prompts."""
    model = digit_model()
    per_type = request.choose(150, 60)
    digits = np.repeat(np.arange(len(DIGITS)), per_type)
    inks = np.tile(np.arange(len(INKS)), digits.size)[: digits.size]
    specific = [f"a {INKS[ink]} {DIGITS[digit]}" for digit, ink in zip(digits, inks, strict=True)]
    vague = [f"a {INKS[ink]} digit" for ink in inks]
    features = model.features(model.generate(specific))
    rows = []
    for count in range(1, len(DIGITS) + 1):
        chosen = slice(0, count * per_type)
        for name, prompts, clusters in (
            ("vague", vague, inks),
            ("specific", specific, inks * len(DIGITS) + digits),
        ):
            found = dp.evaluate(
                features[chosen],
                embed(prompts)[chosen],
                labels=clusters[chosen],
                num_permutations=0,
                **KERNELS,
            )
            rows.append((count, name, *(float(found.scores[score]) for score in SCORES)))
    return _judged(rows)


def _judged(rows: list[tuple]) -> Outcome:
    columns = [Column("types", "types", "d"), Column("prompts", "prompts")]
    columns += [Column(score, score, ".2f") for score in SCORES]
    figure, axes = panels(2)
    growth: dict[tuple[str, str], float] = {}
    for name, ax in zip(("vague", "specific"), axes, strict=True):
        own = [row for row in rows if row[1] == name]
        curves = {}
        for score in SCORES[:3]:
            values = [row[2 + SCORES.index(score)] for row in own]
            curves[score] = values
        for score in SCORES:
            at = 2 + SCORES.index(score)
            growth[name, score] = own[-1][at] / own[0][at]
        lines(ax, range(1, len(own) + 1), curves, title=f"{name} prompts", xlabel="types", log=True)
    conditional = [growth["vague", "conditional_vendi"], growth["vague", "conditional_rke"]]
    constant = [growth["specific", "conditional_vendi"], growth["specific", "conditional_rke"]]
    verdict = FAILS
    if min(conditional) > _GROWTH and max(constant) < _CONSTANT:
        verdict = HOLDS
    reason = (
        f"From one type to ten, Conditional-Vendi grows by a factor of {conditional[0]:.1f} under "
        f"vague prompts and of {constant[0]:.2f} under specific ones (Conditional-RKE: "
        f"{conditional[1]:.1f} and {constant[1]:.2f}); Cluster-Vendi by "
        f"{growth['vague', 'cluster_vendi']:.1f} and {growth['specific', 'cluster_vendi']:.2f}; "
        f"Vendi by {growth['vague', 'vendi']:.1f}."
    )
    return Outcome(verdict, reason, Table(tuple(columns), tuple(rows)), figure)
