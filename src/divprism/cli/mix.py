"""`divprism mix`: the weights over models that make their outputs together most diverse."""

import typer

from divprism.analysis.mixture import MIXED, mixture
from divprism.cli.job import Job, command, flag
from divprism.errors import ArgumentError
from divprism.report.mixture_tables import mixture_groups, mixture_records, mixture_table
from divprism.scores.registry import numbers_by_name

_LEFT_OUT = ("unit", "fail_under", "plot", "truncation", "preset", "wide")
_ONE_PROCESS = ("workers", "scheduler", "resume")


@command(*_LEFT_OUT, *_ONE_PROCESS)
def mix(
    job: Job,
    others: list[str] = typer.Argument(None, metavar="IN ...", help="More sources, one per model."),
    by: str = flag("Scoring", MIXED[0], "Score to maximise.", metavar="|".join(MIXED)),
    per_prompt: bool = flag("Scoring", False, "Also mix for each prompt.", "--per-prompt"),
    quality: list[str] = flag("Scoring", [], "Quality of a model: first=0.8; once for each."),
    min_quality: float | None = flag("Scoring", None, "Least mean quality of the mixture."),
    top: int = flag("Output", 10, "Prompts in the table; JSON and CSV have all.", min=1),
) -> None:
    """Mix models: which weights make their outputs together most diverse?"""
    if not job.interval:  # for score, 0 means no intervals
        raise ArgumentError("--interval must be above 0: the gain comes with an interval.")
    for flag_name, given in (("field", job.quality_field), ("from", job.quality_from)):
        if given is None:
            continue
        if quality:
            raise ArgumentError(
                f"--quality and --quality-{flag_name} both give a quality; leave one out."
            )
        if min_quality is None:
            raise ArgumentError(
                f"--quality-{flag_name} needs --min-quality: how good mixtures have to be."
            )
    models = job.read_models([job.source, *(others or [])])
    settings = job.settings(next(iter(models.values())))
    options = {"settings": settings, "memory": job.max_memory}
    result = job.run(
        mixture,
        models,
        by=by,
        per_group="prompt" if per_prompt else None,
        quality=numbers_by_name(quality, "--quality") or settings.quality_from,
        min_quality=min_quality,
        **options,
    )
    document = result.to_dict()
    further = mixture_groups(document, top)
    job.show(result, document, mixture_table(document), mixture_records(document), further=further)
