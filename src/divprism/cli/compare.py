"""`divprism compare`: models on the same prompts, ranked."""

import typer

from divprism.analysis.comparison import compare as compare_models
from divprism.analysis.gates import check_gates, parse_gates
from divprism.cli.job import Job, command, flag
from divprism.data.samples import Samples
from divprism.data.wording import differing_names
from divprism.errors import ArgumentError
from divprism.report.overlap_tables import overlap_table
from divprism.report.tables import comparison_table


@command()
def compare(
    job: Job,
    others: list[str] = typer.Argument(None, metavar="IN ...", help="More sources, one per model."),
    by: str = flag("Scoring", "conditional_vendi", "Score to rank by: divprism ls scores."),
    overlap: bool = flag("Scoring", False, "Also show how much the models share.", "--overlap"),
) -> None:
    """Rank models on the same prompts, with the same number of outputs for each prompt."""
    gates = parse_gates(job.fail_under, labels=False)
    if not job.interval:  # for score, 0 means no intervals
        raise ArgumentError("--interval must be above 0: a comparison needs intervals.")
    models = read_models(job, others)
    settings = job.settings(next(iter(models.values())))
    options = {"settings": settings, "memory": job.max_memory, "by": by}
    comparison = job.run(compare_models, models, overlap=overlap, **options)
    document = comparison.to_dict()
    records = comparison_table(document, wide=True)
    further = None
    if overlap:
        further = overlap_table(document["overlap"], job.wide, alone=False)
    table = comparison_table(document, job.wide)
    job.show(comparison, document, table, records, further=further)
    check_gates(comparison.results, gates)


def read_models(job: Job, others: list[str] | None) -> dict[str, Samples]:
    """The samples of all sources, by the name of their model."""
    sources = dict.fromkeys([job.source, *(others or [])])  # the same source twice is one model
    parts = [job.read(source) for source in sources]
    names = differing_names([part.source for part in parts])
    for index, part in enumerate(parts):
        if part.models is not None and len(set(part.models)) == 1:
            names[index] = part.models[0]
    if len(set(names)) < len(parts):
        raise ArgumentError("two sources have the same name; add a field with the model to each.")
    return dict(zip(names, parts, strict=True))
