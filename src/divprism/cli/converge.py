"""`divprism converge`: scores against the number of samples, and whether there are enough."""

from divprism.analysis.convergence import converge as converge_samples
from divprism.cli.job import Job, command, flag, parse_numbers, select_model
from divprism.cli.messages import say
from divprism.report.tables import convergence_table, curves_table
from divprism.scores.settings import UNITS

_OWN_BANDWIDTHS = (
    "bandwidths are chosen on this model alone; divprism score chooses them on all models. For "
    "the same numbers pass its --bandwidth-x and --bandwidth-t."
)


@command()
def converge(
    job: Job,
    model: str | None = flag("Input", None, "Which model, if IN holds several."),
    sizes: str | None = flag("Scoring", None, "Numbers of units, as 100,200,400; all is added."),
    num_repeats: int = flag("Scoring", 5, "Number of random orders."),
    unit: str | None = flag("Scoring", None, "What subsets consist of.", metavar="|".join(UNITS)),
    tolerance: float = flag("Scoring", 0.01, "Relative distance from the limit that suffices."),
) -> None:
    """Score growing subsets: are there enough samples, and for which scores?

    Truncated scores keep n / 8 eigenvalues unless --truncation is given.
    """
    options = {"sizes": parse_numbers(sizes, "--sizes"), "num_repeats": num_repeats, "unit": unit}
    whole = job.read()
    samples = select_model(whole, model)
    options |= {"tolerance": tolerance, "settings": job.settings(samples), "memory": job.max_memory}
    result = job.run(converge_samples, samples, **options)
    if len(samples) < len(whole) and result.settings.bandwidth_rule is not None:
        say([_OWN_BANDWIDTHS], job.quiet)
    document = result.to_dict()
    job.show(result, document, convergence_table(document, job.wide), curves_table(document))
