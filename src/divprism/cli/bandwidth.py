"""`divprism bandwidth`: the bandwidths that the rules choose, and scores over a range of them."""

from divprism.analysis.bandwidth_sweep import bandwidth_sweep
from divprism.analysis.evaluation import SCHEMA
from divprism.cli.job import Job, command, flag, parse_numbers, select_model
from divprism.errors import ArgumentError
from divprism.report.tables import sweep_table

# A sweep sets the kernels itself, and computes all eigenvalues of matrices of --max-rows rows.
_UNUSED = ("kernel_x", "kernel_t", "bandwidth_x", "bandwidth_t", "estimator", "max_memory", "wide")


@command(*_UNUSED)
def bandwidth(
    job: Job,
    model: str | None = flag("Input", None, "Which model; default: all of IN together."),
    bandwidths_x: str | None = flag("Scoring", None, "Bandwidths of the outputs, as 0.5,1,2."),
    bandwidths_t: str | None = flag("Scoring", None, "Bandwidths of the prompts."),
    max_rows: int = flag("Scoring", 1000, "Score a random sample of at most so many pairs.", min=2),
) -> None:
    """Score over a range of bandwidths, first of the outputs, then of the prompts."""
    options = {
        "bandwidths_x": parse_numbers(bandwidths_x, "--bandwidths-x"),
        "bandwidths_t": parse_numbers(bandwidths_t, "--bandwidths-t"),
        "max_rows": max_rows,
    }
    samples = job.read()
    if model is not None:
        samples = select_model(samples, model)
    if getattr(samples.prompts, "ndim", 2) == 1:
        raise ArgumentError("these prompts are ids, which have no bandwidth; give their texts.")
    sweep = job.run(bandwidth_sweep, samples, settings=job.settings(samples), **options)
    document = {"schema": SCHEMA} | sweep.to_dict()
    table = sweep_table(document)
    job.show(sweep, document, table, table)
