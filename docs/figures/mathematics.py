"""Draw the figures of docs/explanation/mathematics.md.

python docs/figures/mathematics.py [--out docs/figures]
"""

import argparse
import math
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt

import divprism as dp

PROMPT, MODEL, INK = "#e69f00", "#0072b2", "#333333"
CENTRES = np.array([[0.0, 0.0], [4.0, 0.0], [2.0, 3.2]])


def three_clouds(rng: np.random.Generator, spread: float) -> np.ndarray:
    """Twenty outputs around each of three centres."""
    noise = spread * rng.standard_normal((3, 20, 2))
    return (CENTRES[:, None, :] + noise).reshape(-1, 2)


def draw_outputs(axis: plt.Axes, x: np.ndarray, title: str) -> None:
    """The outputs as points."""
    axis.scatter(*x.T, s=12, color=MODEL, linewidths=0)
    axis.set(xlim=(-2, 6), ylim=(-2, 5.2), xticks=[], yticks=[], aspect="equal")
    axis.set_title(title, fontsize=10, color=INK)


def draw_spectrum(axis: plt.Axes, score: dp.Score) -> None:
    """The largest eigenvalues as bars, and the score that they give."""
    values = np.sort(np.asarray(score.spectra["x"].values))[::-1]
    shown = np.pad(values, (0, 10))[:10]  # the kernel of equal outputs has one eigenvalue
    axis.bar(np.arange(1, 11), shown, color=MODEL, width=0.7)
    axis.set(ylim=(0, 1), xticks=[1, 5, 10], yticks=[0, 0.5, 1], xlabel="eigenvalue")
    axis.text(10.4, 0.9, f"vendi {float(score):.1f}", ha="right", fontsize=11, color=INK)
    axis.spines[["top", "right"]].set_visible(False)


def spectra_figure(path: Path) -> None:
    """Three sets of outputs, and the spectra of their kernel matrices."""
    rng = np.random.default_rng(0)
    sets = {
        "one output, repeated": np.tile(CENTRES[2], (60, 1)),
        "three kinds of outputs": three_clouds(rng, 0.15),
        "three wide kinds": three_clouds(rng, 0.6),
    }
    figure, axes = plt.subplots(2, 3, figsize=(8, 4.4), layout="constrained")
    for column, (title, x) in zip(axes.T, sets.items(), strict=True):
        draw_outputs(column[0], x, title)
        draw_spectrum(column[1], dp.vendi(x, kernel=dp.Gaussian(1.0), estimator=dp.Exact()))
    axes[1, 0].set_ylabel("share")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def four_models() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Four models on four prompts with six outputs each, as one-hot vectors: name -> (x, t)."""
    prompts = np.repeat(np.arange(4), 6)
    index = np.tile(np.arange(6), 4)
    kinds = {
        "constant:\none output": np.zeros(24, int),
        "follower:\none output per prompt": prompts,
        "ignorer:\nthe same six\nfor each prompt": index,
        "both:\nsix of its own\nfor each prompt": 6 * prompts + index,
    }
    return {name: (np.eye(24)[kind], np.eye(4)[prompts]) for name, kind in kinds.items()}


def decomposition_figure(path: Path) -> None:
    """The split of log vendi into information and conditional, for four models on paper."""
    models = four_models()
    figure, axis = plt.subplots(figsize=(8, 2.9), layout="constrained")
    for row, (x, t) in enumerate(models.values()):
        result = dp.evaluate(x, t, kernel_x=dp.Cosine(), kernel_t=dp.Cosine(), interval=None)
        information = float(result.information_vendi)
        conditional = float(result.conditional_vendi)
        left = 0.0
        for value, color in ((information, PROMPT), (conditional, MODEL)):
            width = math.log(max(value, 1.0))
            axis.barh(row, width, left=left, color=color, height=0.6)
            if width > 0.1:
                style = {"ha": "center", "va": "center", "color": "white", "weight": "bold"}
                axis.text(left + width / 2, row, f"{value:.0f}", **style)
            left += width
        axis.text(left + 0.05, row, f"vendi {float(result.vendi):.0f}", va="center", color=INK)
    axis.set(xlim=(0, 3.8), yticks=range(4), ylim=(3.6, -0.6))
    axis.set_yticklabels(list(models), fontsize=9)
    ticks = [1, 2, 4, 8, 16, 24]
    axis.set_xticks([math.log(tick) for tick in ticks], [str(tick) for tick in ticks])
    axis.set_xlabel("effective number, logarithmic")
    axis.spines[["top", "right"]].set_visible(False)
    swatches = [plt.Rectangle((0, 0), 1, 1, color=color) for color in (PROMPT, MODEL)]
    axis.legend(swatches, ["information", "conditional"], frameon=False, loc="upper right")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def bandwidth_figure(path: Path) -> None:
    """Vendi of the three kinds over the bandwidth."""
    x = three_clouds(np.random.default_rng(0), 0.15)
    bandwidths = np.geomspace(0.003, 40, 60)
    values = [float(dp.vendi(x, kernel=dp.Gaussian(b), estimator=dp.Exact())) for b in bandwidths]
    figure, axis = plt.subplots(figsize=(5.2, 3), layout="constrained")
    axis.plot(bandwidths, values, color=MODEL)
    axis.set(xscale="log", yscale="log", xlabel="bandwidth", ylabel="vendi", ylim=(0.9, 90))
    axis.set_xticks([0.01, 0.1, 1, 10], ["0.01", "0.1", "1", "10"])
    axis.set_yticks([1, 3, 10, 60], ["1", "3", "10", "60"])
    axis.minorticks_off()
    style = {"color": INK, "fontsize": 9}
    axis.text(0.004, 40, "all 60 differ", **style)
    axis.text(0.8, 4.3, "three kinds", **style)
    axis.text(11, 1.5, "all are alike", **style)
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def main() -> None:
    """Draw all figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/figures"))
    folder = parser.parse_args().out
    mpl.rcParams.update({"font.family": "DejaVu Sans", "font.size": 10})
    spectra_figure(folder / "spectra.png")
    decomposition_figure(folder / "decomposition.png")
    bandwidth_figure(folder / "vendi_bandwidth.png")


if __name__ == "__main__":
    main()
