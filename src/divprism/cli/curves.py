"""`divprism converge` and `divprism bandwidth`: scores against sample size, and bandwidth."""

from divprism.analysis.bandwidth_sweep import bandwidth_sweep
from divprism.analysis.convergence import converge as converge_samples
from divprism.analysis.inputs import named_model
from divprism.cli.job import ASSESSMENT, RATING, Job, command, flag
from divprism.errors import ArgumentError
from divprism.report.tables import convergence_table, curves_table, sweep_table
from divprism.scores.registry import numbers_of

# A sweep sets the kernels itself, and computes all eigenvalues of matrices of --max-rows rows.
_NOT_SWEPT = ("kernel_x", "kernel_t", "bandwidth_x", "bandwidth_t", "estimator", "max_memory")
_ONE_MACHINE = ("workers", "scheduler", "resume")  # subsets are small
_UNUSED = ("quality_field", *RATING)  # curves are those of diversity


@command(*(name for name in ASSESSMENT if name != "unit"), *_ONE_MACHINE, *_UNUSED)
def converge(
    job: Job,
    model: str | None = flag("Input", None, "Which model, if there are several in IN."),
    sizes: str | None = flag("Scoring", None, "Subset sizes, such as 100,200,400."),
    num_repeats: int = flag("Scoring", 5, "Number of random orders of the data."),
    tolerance: float = flag("Scoring", 0.01, "Relative error that is small enough."),
) -> None:
    """Score growing subsets: for which scores are there enough samples?"""
    subsets = {"sizes": numbers_of(sizes, "--sizes"), "num_repeats": num_repeats}
    samples = job.read()
    options = {"settings": job.settings(samples), "memory": job.max_memory, "tolerance": tolerance}
    options |= {"model": named_model(samples, model)}
    result = job.run(converge_samples, samples, **subsets, **options)
    document = result.to_dict()
    job.show(result, document, convergence_table(document, job.wide), curves_table(document))


@command(*_NOT_SWEPT, *_ONE_MACHINE, *ASSESSMENT, *_UNUSED, "wide")
def bandwidth(
    job: Job,
    model: str | None = flag("Input", None, "Which model; default: all of them together."),
    bandwidths_x: str | None = flag("Scoring", None, "Bandwidths of the outputs: 0.5,1,2."),
    bandwidths_t: str | None = flag("Scoring", None, "Bandwidths of the prompts."),
    max_rows: int = flag("Scoring", 1000, "Score at most this many pairs.", min=2),
) -> None:
    """Show how the scores depend on the bandwidth of the outputs and of the prompts."""
    grids = {"bandwidths_x": numbers_of(bandwidths_x, "--bandwidths-x")}
    grids |= {"bandwidths_t": numbers_of(bandwidths_t, "--bandwidths-t")}
    samples = job.read()
    if model is not None:
        named_model(samples, model)
    if getattr(samples.prompts, "ndim", 2) == 1:
        raise ArgumentError("these prompts are ids, which have no bandwidth; give their texts.")
    options = {"max_rows": max_rows, "settings": job.settings(samples), "model": model}
    sweep = job.run(bandwidth_sweep, samples, **grids, **options)
    document = sweep.to_dict()
    table = sweep_table(document)
    job.show(sweep, document, table, table)  # which is complete, so it serves CSV as well
