"""`divprism groups`: diversity inside each group of prompts, the least diverse first."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from divprism.analysis import groups as library
from divprism.analysis.inputs import named_model
from divprism.cli.job import ASSESSMENT, RATING, Job, command, flag
from divprism.data.readers import read_arrays
from divprism.data.readers.guards import shown
from divprism.data.samples import Samples
from divprism.errors import ArgumentError, DivprismError
from divprism.report.group_tables import group_records, groups_listing

_WAYS: dict[str, Callable[[int], library.Grouping | None]] = {
    "auto": lambda number: None,  # the default of the library
    "eigen": library.EigenGrouping,
    "directions": library.EigenDirectionGrouping,
    "prompt": lambda number: library.ExactPromptGrouping(),  # as many as there are
    "kmeans": library.KMeansGrouping,
}


@command(*ASSESSMENT, "quality_field", *RATING, "plot", "workers", "scheduler", "resume")
def groups(
    job: Job,
    by: str = flag("Scoring", "auto", "How to group prompts.", metavar="|".join([*_WAYS, "FIELD"])),
    labels: str | None = flag("Input", None, "File with a group per output; replaces --by."),
    model: str | None = flag("Input", None, "Which model, if there are several in IN."),
    num_groups: int = flag("Scoring", 10, "Groups by eigen, directions, kmeans.", min=1),
    num_modes: int = flag("Output", 3, "Kinds of outputs to show per group.", min=0),
    num_examples: int = flag("Output", 3, "Examples per group in the JSON.", min=1),
    min_size: int | None = flag("Scoring", None, "Least size to compare: 5, of a prompt 3.", min=2),
    top: int = flag("Output", 10, "Groups in the table; JSON and CSV have all.", min=1),
    nested: bool = flag("Scoring", False, "Also correlate with the cluster scores.", "--nested"),
) -> None:
    """Find the groups of prompts for which a model repeats itself."""
    if nested and by == "directions" and labels is None:
        raise ArgumentError("--nested needs groups that do not overlap; directions overlap.")
    samples, values = _read(job, by, model, labels)
    model = named_model(samples, model)
    options = {"settings": job.settings(samples), "memory": job.max_memory, "model": model}
    sizes = {"num_groups": num_groups, "min_size": min_size}
    shown_of_each = {"num_modes": num_modes, "num_examples": num_examples, **sizes}
    grouping = _WAYS[by](num_groups) if values is None else library.LabelGrouping(values)
    result = job.run(library.prompt_groups, samples, grouping=grouping, **shown_of_each, **options)
    document = result.to_dict()
    if nested:
        if model is not None:
            samples = samples.by_model()[model]
        document["nested"] = _nested(job, samples, result)
    job.show(result, document, groups_listing(document, top, job.wide), group_records(document))


def _read(job: Job, by: str, model: str | None, labels: str | None) -> tuple[Samples, Any]:
    """All samples, and the labels of one model if a file or a field holds them."""
    if labels is not None:
        return job.read(), read_arrays(labels, "labels", job.source)
    if by in _WAYS:
        return job.read(), None
    if job.source == "-":
        raise ArgumentError("--by FIELD reads IN twice, so IN cannot be standard input.")
    samples = job.read()
    quiet = replace(job, quiet=True)
    whole = quiet.read(limit=None)
    try:
        # As if the field named the model: so a field can be read from every format.
        values = quiet.read(limit=None, model_field=by).models
    except DivprismError as error:
        # The field was read as `model_field`, which is not the flag that was given.
        ways, reason = ", ".join(_WAYS), str(error).replace(" (`model_field`)", "")
        raise ArgumentError(f"--by must be {ways} or a field; got {shown(by)}: {reason}") from None
    if values is None or len(values) != len(whole):
        raise ArgumentError(f"--by {shown(by)}: {whole.source} has no such field per output.")
    wanted = named_model(whole, model)
    labelled = zip(whole.models or values, values, strict=True)
    kept = [value for name, value in labelled if wanted in (None, name)]
    return samples, kept[: job.limit]


def _nested(job: Job, samples: Samples, result: library.PromptGroups) -> dict[str, object]:
    """Conditional and Cluster scores over more and more of the groups."""
    assert result.labels is not None
    names = {group.name for group in result.groups}
    rows = [row for row, name in enumerate(result.labels) if name in names]  # "" is no group
    labels = [result.labels[row] for row in rows]
    # With the bandwidths of all rows, those in no group too.
    options = {"t": None, "labels": labels, "settings": result.settings}
    return job.run(library.nested_scores, samples.select(rows), **options).to_dict()
