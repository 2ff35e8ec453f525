"""Do scores of generators with more and less noise settle on different values?"""

import divprism as dp
from experiments.papers.base import (
    TRUNCATED,
    Outcome,
    Request,
    but_not,
    experiment,
    judged,
)
from experiments.papers.setups import mixed_pairs, rises
from experiments.papers.vendi_convergence import Panel, drawn, panel, table

_SCALES = (0.4, 0.7, 1.0)

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
        "grows with psi. With a cosine kernel scores stay relatively constant."
    ),
    stand_in=(
        "The digit model with psi times the noise; features of the judge for DINOv2. t is half of "
        "the largest sample, and the bandwidth that of the papers' rule at psi = 1."
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
        told.append(f"{name} {values[0]:.1f}, {values[1]:.1f}, {values[2]:.1f}")
    growth = {}
    for name, own in found.items():
        growth[name] = own[-1].curves["Vendi"][-1] / own[0].curves["Vendi"][-1]
    share = growth["cosine"] - 1, growth["Gaussian"] - 1
    claims[f"Vendi grows less with a cosine kernel ({100 * share[0]:+.0f} %)"] = share[0] < share[1]
    constant = f"Vendi with a cosine kernel constant within 10 % ({100 * share[0]:+.0f} %)"
    claims[constant] = abs(share[0]) < _NEAR
    verdict, failed = judged(claims)
    scales = ", ".join(f"{psi:g}" for psi in _SCALES)
    reason = (
        f"With all images and a Gaussian kernel, at psi of {scales}: {'; '.join(told)}. From the "
        f"smallest psi to the largest Vendi grows by {100 * share[1]:.0f} % with a Gaussian kernel "
        f"and by {100 * share[0]:.0f} % with a cosine kernel.{but_not(failed)}"
    )
    every = [each for own in found.values() for each in own]
    return Outcome(verdict, reason, table(every), drawn(every, columns=len(_SCALES)))
