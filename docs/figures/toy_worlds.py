"""Draw the picture of the README: four toy worlds, and how their diversity splits into what prompts and model bring.

python docs/figures/toy_worlds.py [--out docs/figures/toy_worlds.png]
"""

import argparse
import math

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt

import divprism as dp
from divprism.data import toy

PROMPT, MODEL, INK = "#e69f00", "#0072b2", "#333333"


def draw_world(axis: plt.Axes, world: toy.World) -> None:
    """Outputs, the prompts that they were drawn under, and some of the pairs."""
    shown = np.random.default_rng(0).choice(len(world.x), 120, replace=False)
    axis.plot(
        *np.stack([world.x[shown], world.t[shown]], axis=2).T.transpose(1, 0, 2),
        color="#bbbbbb",
        lw=0.4,
        zorder=0,
    )
    axis.scatter(*world.x[shown].T, s=9, color=MODEL, label="output", linewidths=0)
    axis.scatter(*world.t[shown].T, s=9, color=PROMPT, label="prompt", linewidths=0)
    axis.set(xlim=(-2.1, 2.1), ylim=(-2.1, 2.1), xticks=[], yticks=[], aspect="equal")
    axis.set_title(
        f"{world.text_modes} kind{'s' * (world.text_modes > 1)} of prompt", fontsize=10, color=INK
    )


def draw_split(axis: plt.Axes, result: dp.Evaluation) -> None:
    """log vendi as one bar, cut into log information and log conditional."""
    information, conditional = (
        float(result.scores["information_vendi"]),
        float(result.scores["conditional_vendi"]),
    )
    left = 0.0
    for value, colour in ((information, PROMPT), (conditional, MODEL)):
        axis.barh(0, math.log(value), left=left, color=colour, height=0.8)
        axis.text(
            left + math.log(value) / 2,
            0,
            f"{value:.1f}",
            ha="center",
            va="center",
            color="white",
            fontsize=10,
            weight="bold",
        )
        left += math.log(value)
    axis.set(xlim=(0, 2.45), ylim=(-0.5, 0.9), xticks=[], yticks=[])
    axis.text(0, 0.55, f"vendi {float(result.vendi):.1f} =", fontsize=9, color=INK)
    axis.set_frame_on(False)


def main() -> None:
    """Score the worlds and save the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="docs/figures/toy_worlds.png")
    arguments = parser.parse_args()
    mpl.rcParams.update({"font.family": "DejaVu Sans"})
    worlds = toy.text_series()
    kernel = dp.Gaussian(toy.BANDWIDTH)
    figure, axes = plt.subplots(2, 4, figsize=(9, 3.3), height_ratios=[5, 1], layout="constrained")
    for column, world in zip(axes.T, worlds, strict=True):
        draw_world(column[0], world)
        draw_split(column[1], dp.evaluate(world.x, world.t, kernel_x=kernel, kernel_t=kernel))
    figure.legend(
        handles=[
            plt.Rectangle((0, 0), 1, 1, color=PROMPT),
            plt.Rectangle((0, 0), 1, 1, color=MODEL),
        ],
        labels=[
            "prompts, and the diversity they bring (information)",
            "outputs, and the diversity the model brings (conditional)",
        ],
        loc="outside lower center",
        ncols=2,
        frameon=False,
        fontsize=9,
    )
    figure.savefig(arguments.out, dpi=160, facecolor="white")


if __name__ == "__main__":
    main()
