"""`divprism demo`: two series of toy worlds in which the right direction of every score is known."""

from pathlib import Path

import numpy as np
import typer

from divprism.errors import DataError
from divprism.evaluation import Evaluation, evaluate
from divprism.kernels import Gaussian
from divprism.toy import BANDWIDTH, World, image_series, matched_mixtures, text_series

__all__ = ["demo"]

_HEAD = f"{'text modes':>10} {'image modes':>11} {'vendi':>8} = {'conditional':>11} x {'information':>11}"


def demo(
    save: Path | None = typer.Option(None, "--save", help="Keep one world as outputs.npy and prompts.npy in this folder."),
) -> None:
    """Score nine toy worlds (made on the fly, nothing is downloaded) and say what to read from them."""
    typer.echo("Prompts and outputs are points in the plane, drawn from Gaussian modes and paired so that the sum of squared")
    typer.echo(
        f"distances is least. 1,000 pairs a world, kernel exp(-d^2 / (2 bandwidth^2)), bandwidth {BANDWIDTH} on both sides."
    )
    first = _series("Four kinds of image under more and more kinds of prompt", text_series())
    _read(
        first,
        "The outputs are equally diverse throughout. The more the prompts say, the more of that diversity they bring\n"
        "(information) and the less is left for the model (conditional).",
    )
    second = _series("Two kinds of prompt over more and more kinds of image", image_series())
    _read(
        second,
        "The prompts stay the same, so the diversity that is added is the model's own: from the first world to the last\n"
        "conditional more than doubles, while less follows the prompts.",
    )
    if save is not None:
        _keep(matched_mixtures(2, 4), save)


def _series(title: str, worlds: list[World]) -> list[Evaluation]:
    typer.echo(f"\n{title}\n{_HEAD}")
    results = []
    for world in worlds:
        kernel = Gaussian(BANDWIDTH)
        result = evaluate(world.x, world.t, kernel_x=kernel, kernel_t=kernel)
        results.append(result)
        scores = result.vendi, result.conditional_vendi, result.information_vendi
        vendi, conditional, information = (float(score) for score in scores if score is not None)
        typer.echo(
            f"{world.text_modes:>10} {world.image_modes:>11} {vendi:>8.2f} = {conditional:>11.2f} x {information:>11.2f}"
        )
    return results


def _keep(world: World, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, values in (("outputs", world.x), ("prompts", world.t)):
            np.save(folder / f"{name}.npy", values)
    except OSError as error:
        raise DataError(f"cannot write to {folder}: {error.strerror}.") from None
    typer.echo(f"\nKept the world of 2 kinds of prompt and 4 kinds of image in {folder}. Next, score it from its files:")
    typer.echo(f"divprism score --outputs {folder}/outputs.npy --prompts {folder}/prompts.npy")


def _read(results: list[Evaluation], text: str) -> None:
    first, last = results[0], results[-1]
    for name in ("information_vendi", "conditional_vendi"):
        start, end = float(first.scores[name]), float(last.scores[name])
        typer.echo(f"{name} {'rises' if end > start else 'falls'} from {start:.2f} to {end:.2f}.")
    typer.echo(text)
