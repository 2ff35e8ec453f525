"""`divprism demo`: two series of toy worlds in which the right direction of every score is known."""

import typer

from divprism.evaluation import Evaluation, evaluate
from divprism.kernels import Gaussian
from divprism.toy import BANDWIDTH, World, image_series, text_series

__all__ = ["demo"]

_HEAD = f"{'text modes':>10} {'image modes':>11} {'vendi':>8} = {'conditional':>11} x {'information':>11}"


def demo() -> None:
    """Score nine toy worlds (made on the fly, nothing is downloaded) and say what to read from them."""
    typer.echo("Prompts and outputs are points in the plane, drawn from Gaussian modes; each prompt is given the output that")
    typer.echo(f"lies closest. 1,000 pairs a world, Gaussian kernels exp(-d^2 / (2 bandwidth^2)), bandwidth {BANDWIDTH}.")
    first = _series("Four kinds of image under more and more kinds of prompt", text_series())
    _read(
        first,
        "The outputs are equally diverse throughout. The more the prompts say, the more of that diversity they bring\n"
        "(information) and the less is left for the model (conditional).",
    )
    second = _series("Two kinds of prompt over more and more kinds of image", image_series())
    _read(
        second,
        "The prompts stay the same, so the diversity that is added is the model's own: conditional rises with vendi, and a\n"
        "smaller part of it follows the prompts.",
    )


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


def _read(results: list[Evaluation], text: str) -> None:
    first, last = results[0], results[-1]
    for name in ("information_vendi", "conditional_vendi"):
        start, end = float(first.scores[name]), float(last.scores[name])
        typer.echo(f"{name} {'rises' if end > start else 'falls'} from {start:.2f} to {end:.2f}.")
    typer.echo(text)
