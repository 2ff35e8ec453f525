"""`divprism compare`: models on the same prompts, ranked."""

import typer

from divprism.analysis.comparison import compare as compare_models
from divprism.analysis.gates import check_gates, parse_gates
from divprism.cli.job import Job, command, flag
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
    models = job.read_models([job.source, *(others or [])])
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
