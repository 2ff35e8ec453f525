"""Do scores of generators with more and less noise settle on different values?"""

import divprism as dp
from experiments.papers.base import (
    SETTLED,
    TRUNCATED,
    Outcome,
    Request,
    but_not,
    experiment,
    judged,
)
from experiments.papers.setups import mixed_pairs, rises
from experiments.papers.vendi_convergence import Panel, drawn, panel, table

_SCALES = (0.4, 0.7, 0.9, 1.0)

# The last step of the scales is an incremental change.
_BEFORE_LAST = -2

# Distance up to which approximations count as converging to the truncated score.
_NEAR = 0.1

_SCORES = ("truncated", "Nystrom", "FKEA")


@experiment(
    "psi-convergence",
    TRUNCATED,
    "Fig. 12, 13",
    claim=(
        "At each truncation factor psi of StyleGAN3 and StyleGAN-XL, and a fixed Gaussian kernel, "
        "truncated, Nystrom and FKEA scores converge to the truncated score of that psi, which "
        "grows with psi. Under incremental changes of psi scores with a cosine kernel stay "
        "relatively constant."
    ),
    stand_in=(
        "The digit model with psi times the noise; features of the judge for DINOv2. t is half of "
        "the largest sample, and the bandwidth that of the papers' rule at psi = 1. From 0.4 to 1 "
        "psi changes diversity by a factor of two; the step from 0.9 to 1 stands for an "
        "incremental change."
    ),
)
def noise_convergence(request: Request) -> Outcome:
    """Scores of more and more images, for several scales of the noise."""
    largest = request.choose(2000, 600)
    vectors = {psi: mixed_pairs(largest, psi=psi).x for psi in _SCALES}
    gaussian = dp.Gaussian(dp.StableScore().bandwidth(vectors[_SCALES[-1]]))
    kernels: dict[str, dp.Gaussian | dp.Cosine] = {"Gaussian": gaussian, "cosine": dp.Cosine()}
    found: dict[str, list[Panel]] = {}
    for name, kernel in kernels.items():
        for psi, x in vectors.items():
            found.setdefault(name, []).append(panel(f"images at psi = {psi}", x, name, kernel))
    claims, told = {}, []
    for each in found["Gaussian"]:
        for name, distance in each.distances.items():
            part = f"{name} of {each.kind} near the truncated score ({100 * distance:+.2f} %)"
            claims[part] = abs(distance) < _NEAR
    for name in _SCORES:
        values = [each.curves[name][-1] for each in found["Gaussian"]]
        claims[f"{name} grows with psi"] = rises(values)
        told.append(f"{name} {', '.join(f'{value:.1f}' for value in values)}")
    whole, last = {}, {}
    for name, own in found.items():
        values = [each.curves["Vendi"][-1] for each in own]
        whole[name] = values[-1] / values[0] - 1
        last[name] = values[-1] / values[_BEFORE_LAST] - 1
    step = f"from psi = {_SCALES[_BEFORE_LAST]:g} to {_SCALES[-1]:g}"
    less = f"Vendi grows less with a cosine kernel {step} ({100 * last['cosine']:+.1f} %)"
    claims[less] = last["cosine"] < last["Gaussian"]
    constant = f"Vendi with a cosine kernel constant {step} ({100 * last['cosine']:+.1f} %)"
    claims[constant] = abs(last["cosine"]) <= SETTLED
    verdict, failed = judged(claims)
    scales = ", ".join(f"{psi:g}" for psi in _SCALES)
    reason = (
        f"With all {largest:,} images and a Gaussian kernel, at psi of {scales}: "
        f"{'; '.join(told)}. An approximation within {100 * _NEAR:g} % of the truncated score "
        f"counts as converging to it. {step.capitalize()} Vendi grows by "
        f"{100 * last['Gaussian']:.1f} % with a Gaussian kernel and by "
        f"{100 * last['cosine']:.1f} % with a cosine kernel; up to {100 * SETTLED:g} % counts "
        f"as constant.{but_not(failed)} From psi = {_SCALES[0]:g} to {_SCALES[-1]:g} Vendi grows "
        f"by {100 * whole['Gaussian']:.0f} and by "
        f"{100 * whole['cosine']:.0f} %, which is no incremental change and not judged."
    )
    every = [each for own in found.values() for each in own]
    return Outcome(verdict, reason, table(every), drawn(every, columns=len(_SCALES)))
