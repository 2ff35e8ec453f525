"""`divprism diff`: what one model makes that another one, or real data, do not hold."""

from typing import Any

import typer

from divprism.analysis import groups as library
from divprism.analysis.differences import Differences, Novelty
from divprism.analysis.differences import diff as diff_models
from divprism.analysis.differences import novelty as novelty_of
from divprism.analysis.differences.compared import MODES_OF
from divprism.cli.config import typed
from divprism.cli.job import OF_IN_ALONE, RATING, Job, command, flag
from divprism.errors import ArgumentError
from divprism.report.difference_tables import (
    difference_records,
    differences_table,
    groups_of_differences_table,
    novelty_records,
    novelty_table,
)

_GROUPINGS: dict[str, library.Grouping] = {
    "prompt": library.ExactPromptGrouping(),
    "eigen": library.EigenGrouping(),
    "kmeans": library.KMeansGrouping(10),
}
# Flags that have nothing to act on: entropies, gates, plots, clusters and qualities.
_NOT_USED = ("order", "truncation", "estimator", "fail_under", "plot", "wide")


@command(*_NOT_USED, *RATING, "quality_field", "workers", "scheduler", "resume")
def diff(
    job: Job,
    other: str | None = typer.Argument(None, metavar="IN2", help="Outputs of a second model."),
    reference: str | None = flag("Input", None, "Real data; alone with IN: what is novel in IN."),
    first: str | None = flag("Input", None, "First model, if IN holds several."),
    second: str | None = flag("Input", None, "Second model, if IN holds several."),
    modes_of: str = flag(
        "Scoring", "outputs", "Find modes of outputs, or of pairs.", metavar="|".join(MODES_OF)
    ),
    ratio: float = flag("Scoring", 1.0, "List what is over NUMBER times as frequent."),
    num_modes: int = flag("Scoring", 10, "Number of modes.", min=1),
    group_by: str | None = flag(
        "Scoring", None, "Also compare inside groups of prompts.", metavar="|".join(_GROUPINGS)
    ),
    quantile: float = flag("Scoring", 0.01, "Share of false near-copies to accept."),
    num_examples: int = flag("Output", 3, "Examples of each mode in the JSON and page.", min=1),
) -> None:
    """Find what one model makes that another one, or real data, do not hold."""
    if group_by is not None and group_by not in _GROUPINGS:
        raise ArgumentError(f"--group-by must be {', '.join(_GROUPINGS)}; got {group_by!r}.")
    if not job.interval:  # for score, 0 means no intervals
        raise ArgumentError("--interval must be above 0: a clear mode is one with an interval.")
    source: Any = job.read_models([job.source, other or job.source])
    samples, num_models = next(iter(source.values())), len(source)
    if other is None:
        source, num_models = samples, len(set(samples.models or ()))
    options: dict[str, Any] = {"num_modes": num_modes, "num_examples": num_examples}
    options |= {"memory": job.max_memory, "ratio": ratio, "settings": job.settings(samples)}
    real = None
    if reference is not None:
        real = job.read(reference, (), **OF_IN_ALONE)
    if other is None and real is not None and second is None:
        _refuse_flags(job, ("modes_of", "group_by"), "two models")
        options |= {"reference": real, "model": first, "quantile": quantile}
        found = job.run(novelty_of, samples, **options)
        _show(job, found, novelty_table, novelty_records)
        return
    if num_models < 2:
        raise ArgumentError(
            "diff needs two models: name a second source or a --model-field, or compare with real "
            "data by --reference."
        )
    _refuse_flags(job, ("quantile",), "--reference alone")
    options |= {"reference": real, "modes_of": modes_of}
    if group_by is not None:
        options["grouping"] = _GROUPINGS[group_by]
    result = job.run(diff_models, source, first=first, second=second, **options)
    table = differences_table
    if group_by is not None:
        table = groups_of_differences_table
    _show(job, result, table, difference_records)


def _refuse_flags(job: Job, names: tuple[str, ...], needed: str) -> None:
    """Refuse flags of the other kind of question."""
    for name in names:
        if typed(job.context, name):
            raise ArgumentError(f"--{name.replace('_', '-')} needs {needed}.")


def _show(job: Job, result: Differences | Novelty, table: Any, records: Any) -> None:
    document = result.to_dict()
    job.show(result, document, table(document), records(document))
