"""`divprism bandwidth`: what the rules choose, and scores over a range of bandwidths."""

import json
from pathlib import Path
from typing import Any

import typer

from divprism.analysis.bandwidth_sweep import BandwidthSweep, SideSweep, bandwidth_sweep
from divprism.cli.flags import Embedding, Reading, Scoring, bundled, of_model
from divprism.cli.options import (
    Config,
    Output,
    Quiet,
    choice,
    progress_on_stderr,
    say,
    typed,
    write_result,
)
from divprism.cli.report import Plot, check_plot, write_plot
from divprism.core.kernels import Gaussian
from divprism.data.samples import Samples
from divprism.embedders.embedding import embed
from divprism.errors import ArgumentError
from divprism.scores import registry

__all__ = ["bandwidth"]

_FORMATS = ("table", "json")
_SIDES = {"x": "outputs", "t": "prompts"}


@bundled
def bandwidth(
    context: typer.Context,
    reading: Reading,
    scoring: Scoring,
    embedding: Embedding,
    model: str | None = typer.Option(
        None, "--model", help="Which model; default: all of IN together, as score does."
    ),
    bandwidths_x: str | None = typer.Option(
        None, "--bandwidths-x", help="Bandwidths of the outputs to try, as 0.5,1,2."
    ),
    bandwidths_t: str | None = typer.Option(
        None, "--bandwidths-t", help="Bandwidths of the prompts to try."
    ),
    max_rows: int = typer.Option(
        1000, "--max-rows", min=2, help="Of more pairs a seeded draw of so many is swept."
    ),
    quiet: Quiet = False,
    form: str = typer.Option("table", "--format", help="table|json.", metavar="table|json"),
    output: Output = None,
    plot: Plot = None,
    config: Config = None,
) -> None:
    """Choose bandwidths by rule, and score over a range of them, those of outputs first, then those of prompts."""
    choice(form, _FORMATS, "--format")
    check_plot(plot)
    settings = _settings(context, scoring, config)
    samples = reading.samples()
    say(samples.notes, quiet)
    samples = samples if model is None else of_model(samples, model)
    with progress_on_stderr(quiet) as progress:
        embedded = embed(samples, **embedding.settings(samples), progress=progress)
    say(embedded.notes[len(samples.notes) :], quiet)
    say(embedded.warnings, False, "warning: ")
    if getattr(embedded.prompts, "ndim", 2) == 1:
        raise ArgumentError(
            "these prompts are ids, which have no bandwidth; sweep the outputs alone, or embed the prompts."
        )
    found = bandwidth_sweep(
        embedded.outputs,
        embedded.prompts,
        bandwidths_x=_numbers(bandwidths_x, "x"),
        bandwidths_t=_numbers(bandwidths_t, "t"),
        max_rows=max_rows,
        **settings,
    )
    write_result((_table if form == "table" else _json)(found, embedded), output)
    if plot is not None:
        write_plot(found, plot)


def _settings(context: typer.Context, scoring: Scoring, config: Path | None) -> dict[str, Any]:
    """Keywords of the sweep; flags that it has no use for are refused, and told where they come from a config file."""
    for flag in ("estimator", "max_memory"):
        if typed(context, flag):
            shown = flag.replace("_", "-")
            raise ArgumentError(
                f"--{shown} has no meaning for a sweep: its matrices have --max-rows rows, and are solved exactly."
            )
    settings = scoring.settings(context)
    chosen = [side for side in ("x", "t") if settings[f"kernel_{side}"] is not None]
    if any(
        not isinstance(settings[f"kernel_{side}"], Gaussian) or _by_flag(context, side)
        for side in chosen
    ):
        raise ArgumentError(
            "a sweep is over Gaussian bandwidths: leave out --kernel-x and the like, try some by --bandwidths-x."
        )
    if chosen:
        say(
            [f"a sweep keeps the bandwidths of its rule; those of {config} are left out."],
            False,
            "warning: ",
        )
    return {name: settings[name] for name in ("bandwidth_rule", "order", "truncation", "rng")}


def _by_flag(context: typer.Context, side: str) -> bool:
    return typed(context, f"kernel_{side}") or typed(context, f"bandwidth_{side}")


def _numbers(text: str | None, side: str) -> list[float] | None:
    if text is None:
        return None
    try:
        return [
            float(part) for part in text.strip("[]").split(",")
        ]  # brackets: from a result used as --config
    except ValueError:
        raise ArgumentError(
            f"--bandwidths-{side} must be numbers with commas between, as 0.5,1,2; got {text!r}."
        ) from None


def _json(sweep: BandwidthSweep, embedded: Samples) -> str:
    model = None if embedded.models is None else " and ".join(dict.fromkeys(embedded.models))
    data = {"source": embedded.source, "model": model, "skipped": embedded.skipped}
    document = (
        {"schema": 1} | sweep.to_dict() | {"data": data, "embedders": list(embedded.embedders)}
    )
    return json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def _table(sweep: BandwidthSweep, embedded: Samples) -> str:
    drawn = "" if sweep.n == sweep.drawn_from else f", a draw of {sweep.drawn_from:,}"
    cut = "" if sweep.truncation is None else f", truncation {sweep.truncation}"
    made = ", ".join(f"{_SIDES[entry['side']]} by {entry['id']}" for entry in embedded.embedders)
    lines = [
        f"{sweep.n:,} pairs{drawn}; order {sweep.order:g}{cut}; k = exp(-d^2 / (2 bandwidth^2))"
    ]
    lines += [f"rule: {registry.spell(sweep.rule)}" + (f"; embedded: {made}" if made else "")]
    for name, side in (("x", sweep.x), ("t", sweep.t)):
        if side is not None:
            lines += ["", *_side_table(name, side, sweep)]
    return "\n".join(lines) + "\n"


def _side_table(name: str, side: SideSweep, sweep: BandwidthSweep) -> list[str]:
    other = {"x": sweep.t, "t": sweep.x}[name]
    fixed = (
        ""
        if other is None
        else f"; that of {_SIDES['t' if name == 'x' else 'x']} stays at {other.chosen:.4g}"
    )
    lines = [
        f"bandwidth of {_SIDES[name]}: {side.chosen:.4g} by rule, median distance {side.median:.4g}{fixed}"
    ]
    widths = [max(8, len(score)) for score in side.scores]
    lines.append(
        "  ".join(
            [
                "  bandwidth",
                *(f"{score:>{wide}}" for score, wide in zip(side.scores, widths, strict=True)),
            ]
        )
    )
    nearest = int(abs(side.bandwidths / side.chosen - 1).argmin())
    for place, width in enumerate(side.bandwidths):
        cells = [
            f"{side.scores[score][place]:>{wide}.3f}"
            for score, wide in zip(side.scores, widths, strict=True)
        ]
        mark = ">" if place == nearest else " "
        lines.append("  ".join([f"{mark} {width:>9.4g}", *cells]))
    return lines
