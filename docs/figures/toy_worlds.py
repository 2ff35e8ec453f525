"""Draw the figure of the README: four toy worlds and the split of their diversity.

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
NUM_SHOWN = 120  # pairs of each world


def draw_world(axis: plt.Axes, world: toy.World) -> None:
    """Draw some outputs, their prompts, and a line between the two of each pair."""
    shown = np.random.default_rng(0).choice(len(world.x), NUM_SHOWN, replace=False)
    outputs, prompts = world.x[shown], world.t[shown]
    for output, prompt in zip(outputs, prompts, strict=True):
        ends = np.stack([output, prompt])
        axis.plot(ends[:, 0], ends[:, 1], color="#bbbbbb", lw=0.4, zorder=0)
    axis.scatter(*outputs.T, s=9, color=MODEL, label="output", linewidths=0)
    axis.scatter(*prompts.T, s=9, color=PROMPT, label="prompt", linewidths=0)
    axis.set(xlim=(-2.1, 2.1), ylim=(-2.1, 2.1), xticks=[], yticks=[], aspect="equal")
    noun = "kinds" if world.text_modes > 1 else "kind"
    axis.set_title(f"{world.text_modes} {noun} of prompt", fontsize=10, color=INK)


def draw_split(axis: plt.Axes, result: dp.Evaluation) -> None:
    """Draw log vendi as one bar, split into log information and log conditional."""
    information = float(result.scores["information_vendi"])
    conditional = float(result.scores["conditional_vendi"])
    left = 0.0
    for value, color in ((information, PROMPT), (conditional, MODEL)):
        width = math.log(value)
        axis.barh(0, width, left=left, color=color, height=0.8)
        style = {"ha": "center", "va": "center", "fontsize": 10, "weight": "bold"}
        axis.text(left + width / 2, 0, f"{value:.1f}", color="white", **style)
        left += width
    axis.set(xlim=(0, 2.45), ylim=(-0.5, 0.9), xticks=[], yticks=[])
    axis.text(0, 0.55, f"vendi {float(result.vendi):.1f} =", fontsize=9, color=INK)
    axis.set_frame_on(False)


def main() -> None:
    """Score the worlds and save the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="docs/figures/toy_worlds.png")
    arguments = parser.parse_args()
    mpl.rcParams.update({"font.family": "DejaVu Sans"})
    kernel = dp.Gaussian(toy.BANDWIDTH)
    figure, axes = plt.subplots(2, 4, figsize=(9, 3.3), height_ratios=[5, 1], layout="constrained")
    for column, world in zip(axes.T, toy.text_series(), strict=True):
        draw_world(column[0], world)
        draw_split(column[1], dp.evaluate(world.x, world.t, kernel_x=kernel, kernel_t=kernel))
    labels = {
        PROMPT: "prompts, and the diversity they bring (information)",
        MODEL: "outputs, and the diversity the model brings (conditional)",
    }
    figure.legend(
        handles=[plt.Rectangle((0, 0), 1, 1, color=color) for color in labels],
        labels=list(labels.values()),
        loc="outside lower center",
        ncols=2,
        frameon=False,
        fontsize=9,
    )
    figure.savefig(arguments.out, dpi=160, facecolor="white")


if __name__ == "__main__":
    main()
