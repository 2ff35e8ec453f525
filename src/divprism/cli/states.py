"""`divprism state` and `divprism merge`: scores by jobs that know nothing of each other."""

from dataclasses import fields, replace
from pathlib import Path

import typer

from divprism.analysis.evaluation import Results
from divprism.analysis.gates import check_gates, parse_gates
from divprism.analysis.inputs import named_model
from divprism.analysis.states import add_samples, merge_states, metric_for
from divprism.cli.config import typed
from divprism.cli.convert import SHARD
from divprism.cli.job import Job, Reading, command, flag
from divprism.cli.messages import echo, warn, working
from divprism.data.files import check_target, require_apart
from divprism.data.parts import Shard
from divprism.data.readers.shards import matching
from divprism.embedders.embedding import embed
from divprism.report.tables import evaluation_table, scores_table

# A state holds sums, so it has no estimator to choose, no intervals, and nothing to show yet.
_KERNELS = ("kernel_x", "kernel_t", "bandwidth_x", "bandwidth_t")
_SUMMED = (*_KERNELS, "order", "truncation", "rng", "config")
_READ = [field.name for field in fields(Reading) if field.name != "quality_field"]
_MERGED = ("context", "form", "output", "wide", "fail_under", "quiet")


def _all_but(*kept: str) -> list[str]:
    """The flags of a `Job` that a command does without."""
    return [field.name for field in fields(Job) if field.name not in kept]


@command(*_all_but(*_SUMMED, *_READ))
def state(
    job: Job,
    target: Path = flag("Output", ..., "File for the state (.npz).", "--output", "-o"),
    shard: str | None = SHARD,
    model: str | None = flag("Input", None, "Which model, if there are several in IN."),
    num_features: int = flag("Scoring", 1000, "Random frequencies of Gaussian kernels.", min=8),
) -> None:
    """Add up one part of the data in a file, which `divprism merge` joins with other parts."""
    check_target(target)
    part = None
    if shard is not None:  # an empty text is refused: it is not all rows
        part = Shard.parse(shard)
    samples = job.read(written=[target])
    wanted = named_model(samples, model)
    if wanted is not None:
        samples = samples.by_model()[wanted]
    if part is not None:
        samples = part.of(samples)
    metric = metric_for(samples, job.settings(samples), num_features=num_features)
    embedded = job.run(embed, samples, **job.embedders(samples))
    with working(job.quiet, job.context.command) as progress:
        add_samples(metric, embedded, progress)
    metric.save(target)
    echo(f"{target}: {metric.n:,} rows")
    warn(job.context, embedded.warnings)


@command(*_all_but(*_MERGED))
def merge(
    job: Job,
    states: list[str] = typer.Argument(..., metavar="STATE ...", help="Files of divprism state."),
) -> None:
    """Merge states of parts of the data into the scores of all of it, in any order."""
    gates = parse_gates(job.fail_under, labels=False)
    if job.output is not None and job.output.suffix == ".json" and not typed(job.context, "form"):
        job = replace(job, form="json")
    paths = [path for text in states for path in matching(text) or [Path(text)]]
    require_apart(filter(None, [job.output]), paths)
    result = merge_states(paths).compute()
    results, document = Results.of(result), result.to_dict()
    table = evaluation_table(document, job.wide)
    job.show(result, document, table, scores_table(results.documents()))
    check_gates(results, gates)
