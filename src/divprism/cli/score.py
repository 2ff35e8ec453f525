"""`divprism score`: every score of a set of outputs, or of each model in it."""

from dataclasses import replace
from typing import Any

from divprism.analysis.evaluate import evaluate, evaluate_models
from divprism.analysis.evaluation import Results
from divprism.analysis.gates import check_gates, check_possible, parse_gates
from divprism.analysis.scendi_beside import with_scendi
from divprism.cli.job import OF_IN_ALONE, Job, command, flag
from divprism.data.readers import read_arrays
from divprism.data.samples import Samples
from divprism.errors import ArgumentError
from divprism.report.documents import models_of
from divprism.report.tables import evaluation_table, results_table, scores_table


@command("plot")
def score(
    job: Job,
    outputs: str | None = flag("Input", None, "Another way to give IN."),
    labels: str | None = flag("Input", None, "File with a group per output, for cluster scores."),
    weights: str | None = flag("Input", None, "File with a weight per output; the sum must be 1."),
    reference: str | None = flag("Input", None, "Real data: adds distance, recall, coverage."),
    scendi: bool = flag("Scoring", False, "Add Scendi: what prompts do not explain.", "--scendi"),
) -> None:
    """Score outputs against their prompts: Vendi, Conditional-Vendi and Information-Vendi."""
    gates = parse_gates(job.fail_under, labels=labels is not None)
    if (job.source is None) == (outputs is None):
        raise ArgumentError("name the outputs once: divprism score IN, or --outputs IN.")
    job = replace(job, source=job.source or outputs)
    if [job.source, job.prompts, labels, weights, reference].count("-") > 1:
        raise ArgumentError("only one of IN and the files that flags name can be - (stdin).")
    if weights is not None and (job.report is not None or job.details):
        raise ArgumentError("--report and --details do not go with --weights.")
    samples = job.read()
    _check_scendi(scendi, samples, weights)
    check_possible(
        gates,
        labels=labels is not None,
        prompts=samples.prompts is not None,
        quality=samples.quality is not None or job.quality_from is not None,
    )
    options: dict[str, object] = {"settings": job.settings(samples), "memory": job.max_memory}
    for name, path in (("labels", labels), ("weights", weights)):
        if path is not None:
            options[name] = read_arrays(path, name, job.source)
    if reference is not None:
        options["reference"] = job.read(reference, **OF_IN_ALONE)
    if samples.models is None or len(set(samples.models)) == 1:
        result: Any = job.run(evaluate, samples, **options)
        results = _scored(Results.of(result), scendi)
        [result] = results.values()
        document = result.to_dict()
        table = evaluation_table(document, job.wide)  # a row per score
    elif labels is not None or weights is not None:
        raise ArgumentError("--labels and --weights are for one model; this source holds several.")
    else:
        result = results = _scored(job.run(evaluate_models, samples, **options), scendi)
        document = results.to_dict()
        table = results_table(models_of(document), job.wide)  # a row per model
    job.show(result, document, table, scores_table(results.documents()), options.get("labels"))
    check_gates(results, gates)


def _check_scendi(scendi: bool, samples: Samples, weights: str | None) -> None:
    """Refuse --scendi before anything is embedded."""
    if scendi and weights is not None:
        raise ArgumentError("--scendi does not go with --weights.")
    if scendi and samples.prompts is None:
        raise ArgumentError("--scendi needs prompts, and IN has none: give them by --prompts.")


def _scored(results: Results, scendi: bool) -> Results:
    """Results with scendi, if asked for."""
    if scendi:
        return with_scendi(results)
    return results
