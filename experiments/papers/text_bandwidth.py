"""The bandwidth of the prompts moves diversity between the two factors."""

import divprism as dp
from divprism.report.table import Column, Table
from experiments.papers.base import EARLIER, FAILS, HOLDS, Outcome, Request, experiment
from experiments.papers.plots import lines, panels
from experiments.papers.setups import KERNELS, mixed_prompts, pairs_for, rises

_BANDWIDTHS = (0.1, 0.2, 0.3, 0.5, 0.8, 1.5)
_SCALES = {"scale 1": 1.0, "scale 4": 4.0}


@experiment(
    "text-bandwidth",
    EARLIER,
    "Fig. 22 of an earlier version (App. D.7)",
    claim=(
        "A wider kernel on prompts raises Conditional-Vendi and lowers Information-Vendi, and "
        "changes the order of the models little."
    ),
    stand_in="The digit model at two guidance scales, for the models of the paper.",
)
def text_bandwidth(request: Request) -> Outcome:
    """Both factors at several bandwidths of the prompts, for two models."""
    n = request.choose(2000, 400)
    prompts = mixed_prompts(n)
    rows, curves = [], {}
    for name, scale in _SCALES.items():
        pairs = pairs_for(prompts, guidance_scale=scale)
        for bandwidth in _BANDWIDTHS:
            kernels = KERNELS | {"kernel_t": dp.Gaussian(bandwidth)}
            found = dp.evaluate(pairs.x, pairs.t, num_permutations=0, **kernels)
            values = (float(found.conditional_vendi), float(found.information_vendi))
            curves.setdefault(name, []).append(values)
            rows.append((name, bandwidth, *values))
    monotone = True
    for values in curves.values():
        conditional, information = zip(*values, strict=True)
        monotone = monotone and rises(conditional) and rises(information[::-1])
    first, second = ([value[0] for value in each] for each in curves.values())
    same_order = len({a > b for a, b in zip(first, second, strict=True)}) == 1
    verdict = FAILS
    if monotone and same_order:
        verdict = HOLDS
    words = {True: "at every bandwidth", False: "at some bandwidths only"}[same_order]
    reason = (
        f"From {_BANDWIDTHS[0]} to {_BANDWIDTHS[-1]}, Conditional-Vendi goes from {first[0]:.1f} "
        f"to {first[-1]:.1f} at guidance scale 1 and from {second[0]:.1f} to {second[-1]:.1f} at "
        f"scale 4; the two models keep their order {words}."
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
